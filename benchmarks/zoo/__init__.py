"""The zoo: one recorded run of every default, and the page that shows them."""
