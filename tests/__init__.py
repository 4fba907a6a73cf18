"""The tests of lamina; see CONTRIBUTING.md."""
