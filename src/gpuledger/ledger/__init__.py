"""What owners owe: pure functions of readings, without I/O, clock or thread."""
