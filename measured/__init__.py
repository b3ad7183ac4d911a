"""What judges time, memory or chance: figures of this machine, printed by `scripts/measure`. The gate (`tests/`) asks none of it."""
