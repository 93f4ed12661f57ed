"""A small hybrid language model (gated delta net and attention), trained on the text of installed packages."""
