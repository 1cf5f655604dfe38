"""``leadsman doctor``: facts are collected from the broker and the machine, and pure checks make findings of them."""
