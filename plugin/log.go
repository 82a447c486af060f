package main

import (
	"io"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes to standard error, which the runtime keeps or not. An empty level is info.
func newLogger(stderr io.Writer, level string) *zap.Logger {
	return zap.New(logCore(zapcore.AddSync(stderr), level), zap.ErrorOutput(zapcore.AddSync(stderr)))
}

func logCore(to zapcore.WriteSyncer, level string) zapcore.Core {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		at = zapcore.InfoLevel
	}
	return zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime: encodeTime, EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
	}), to, at)
}

// encodeTime writes UTC: for local time the library would read /etc/localtime.
func encodeTime(t time.Time, to zapcore.PrimitiveArrayEncoder) {
	zapcore.RFC3339NanoTimeEncoder(t.UTC(), to)
}

// logToFile has what follows written to the log file too, if one is configured.
func (c *call) logToFile() {
	if c.LogFile == "" {
		return
	}
	file := logFile{path: c.LogFile, limit: logLimit}
	c.log = c.log.WithOptions(zap.WrapCore(func(stderr zapcore.Core) zapcore.Core {
		return zapcore.NewTee(stderr, logCore(zapcore.AddSync(file), c.LogLevel))
	}))
}

// logOutcome writes the line that every call leaves.
func (c *call) logOutcome(began time.Time, err error) {
	o := c.outcome
	fields := []zap.Field{zap.String("command", c.command)}
	text := func(key, value string) {
		if value != "" {
			fields = append(fields, zap.String(key, value))
		}
	}
	text("pod", c.podName())
	text("container", c.attachment.Container)
	text("netns", c.netns)
	text("backend", o.backend)
	text("outcome", o.word)
	text("reason", o.reason)
	text("path", o.path)
	if len(o.problems) > 0 {
		fields = append(fields, zap.Stringers("problems", o.problems))
	}
	warnings := slices.Concat(c.Warnings, o.notices)
	if err == nil {
		warnings = append(warnings, c.Mistakes...) // which nobody else will hear of
	}
	if len(warnings) > 0 {
		fields = append(fields, zap.Strings("warnings", warnings))
	}
	fields = append(fields, zap.Duration("took", time.Since(began)))
	if err != nil {
		fields = append(fields, zap.Error(err))
	}
	c.log.Info(o.message, fields...)
	c.log.Debug("measured phases", phases(o.phases)...)
}

func phases(took map[string]time.Duration) []zap.Field {
	var fields []zap.Field
	for _, name := range slices.Sorted(maps.Keys(took)) {
		fields = append(fields, zap.Duration(name, took[name]))
	}
	return fields
}
