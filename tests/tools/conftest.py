from hypothesis import settings

settings.register_profile("tools", deadline=None, max_examples=150)
settings.load_profile("tools")
