"""Patch sets: changes to one distribution at exact versions, with the digests of before and after."""
