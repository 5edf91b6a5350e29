package embedded

import (
	"context"
	"log/slog"

	"go.temporal.io/server/common/log/tag"
)

// logger gives the server's warnings and errors to a slog.Logger. What it says
// below that is about its insides.
type logger struct{ to *slog.Logger }

func (l logger) log(level slog.Level, msg string, tags []tag.Tag) {
	attrs := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attrs[i] = slog.Any(t.Key(), t.Value())
	}
	l.to.LogAttrs(context.Background(), level, msg, attrs...)
}

func (l logger) Debug(string, ...tag.Tag) {}
func (l logger) Info(string, ...tag.Tag)  {}

func (l logger) Warn(msg string, tags ...tag.Tag)   { l.log(slog.LevelWarn, msg, tags) }
func (l logger) Error(msg string, tags ...tag.Tag)  { l.log(slog.LevelError, msg, tags) }
func (l logger) DPanic(msg string, tags ...tag.Tag) { l.log(slog.LevelError, msg, tags) }

func (l logger) Panic(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	panic("embedded: " + msg)
}

func (l logger) Fatal(msg string, tags ...tag.Tag) {
	l.log(slog.LevelError, msg, tags)
	panic("embedded: " + msg)
}
