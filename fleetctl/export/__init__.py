"""Services of the inventory in the words of other engines."""
