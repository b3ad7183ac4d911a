"""What runs inside the user's program once it imports torch: the standard library and what the program itself has imported."""
