"""A server of one model for many clients at once, as OpenAI's API asks for it: a language model,
which writes text, or a model of embeddings.

From the model to the socket, each file uses those above it:

    pages.py      which pages of the caches belong to which text, and which begin alike
    engine.py     the programs: a chunk of a prompt, and the next token of many texts
    batch.py      which texts are written now, and what the next step computes
    worker.py     the thread that takes steps; requests come in, tokens go out
    protocol.py   bodies of requests and of answers, and errors
    metrics.py    what is counted
    front.py      what every server has: who may ask, bodies, and errors
    app.py        the routes of a language model, over HTTP
    embedding.py  those of a model of embeddings
    command.py    `lamina serve`
"""
