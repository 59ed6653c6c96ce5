"""The resolvers that come with holdfast, one for each scheme. What touches the world is handed in."""
