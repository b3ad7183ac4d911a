"""What judges time, memory or chance: figures of a machine, by `scripts/measure`. The gate (`tests/`) asks none of it."""
