"""A word language model of two LSTM layers, as a user would write it."""

import torch
from torch import nn


class WordLSTM(nn.Module):
    """Embedding, two LSTM layers, and a decoder that shares the embedding's weight.

    Takes n x t word numbers and returns n x t x v scores of the next word.
    """

    def __init__(self, vocabulary: int, hidden: int, dropout: float = 0.4) -> None:
        """Draw the weights; the embedding is as wide as the LSTM."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.decoder.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next word at each place."""
        states, _ = self.rnn(self.dropout(self.embedding(words)))
        scores: torch.Tensor = self.decoder(self.dropout(states))
        return scores
