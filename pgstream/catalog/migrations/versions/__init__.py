"""The migrations, oldest first: ``vNNNN_word.py``, each with its revision and the one before it."""
