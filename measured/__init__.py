"""What judges time, memory or chance: figures of this machine, printed by `scripts/measure`. The gate asks none of it."""
