"""The browser app: plain functions from what a user chose to what the page shows, and the page itself.

Nothing here imports Gradio before ``page.make_page`` is called.
"""
