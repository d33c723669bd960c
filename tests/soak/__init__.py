"""A soak: random statements and deaths against one server for as long as wanted; a checker looks all the time.

``python -m tests.soak --minutes 30 --seed x`` (``make soak``). ``views.py`` has what a view must show at any moment,
``soak.py`` what is done and by what it is judged.
"""
