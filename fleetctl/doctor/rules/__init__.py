"""All rules, one module a family; importing this registers them."""
