"""SELECT + catalogue snapshot → plan. Pure: no I/O, no Spark."""
