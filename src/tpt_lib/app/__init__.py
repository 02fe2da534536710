"""Build and serve the browser app: plain functions turn what a user chose into what the page shows.

Nothing here imports Gradio before ``page.make_page`` is called.
"""
