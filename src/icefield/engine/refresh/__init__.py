"""How tables follow their inputs: append, full, by key, accumulate, and corrections of what they took in."""
