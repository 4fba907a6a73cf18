"""Metal without a Mac: an emulator of its shading language, and a stand-in for PyObjC's classes.

README.md of this folder says what each part does, and what none of them can show.
"""
