package main

import (
	"io"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes to standard error, which the runtime keeps or not, and to a file, if one is
// named. An empty level is info.
func newLogger(stderr io.Writer, level, file string) *zap.Logger {
	core := logCore(zapcore.AddSync(stderr), level)
	if file != "" {
		core = zapcore.NewTee(core,
			logCore(zapcore.AddSync(logFile{path: file, limit: logLimit}), level))
	}
	return zap.New(core, zap.ErrorOutput(zapcore.AddSync(stderr)))
}

func logCore(to zapcore.WriteSyncer, level string) zapcore.Core {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		at = zapcore.InfoLevel
	}
	return zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", MessageKey: "msg",
		EncodeTime: encodeTime, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}), to, at)
}

// encodeTime writes UTC: for local time the library would read /etc/localtime.
func encodeTime(t time.Time, to zapcore.PrimitiveArrayEncoder) {
	zapcore.RFC3339NanoTimeEncoder(t.UTC(), to)
}

// logOutcome writes the line that every call leaves.
func logOutcome(d deps, c call, o outcome, err error) {
	log := d.log
	if o.ours {
		log = d.logOurs
	}
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
	warnings := slices.Concat(c.conf.Warnings, o.warnings, o.notices)
	if err == nil {
		warnings = append(warnings, c.conf.Mistakes...) // which nobody else will hear of
	}
	if len(warnings) > 0 {
		fields = append(fields, zap.Strings("warnings", warnings))
	}
	fields = append(fields, zap.Duration("took", time.Since(c.began)))
	if err != nil {
		fields = append(fields, zap.Error(err))
	}
	log.Info(o.message, fields...)
	log.Debug("measured phases", phases(o.phases)...)
}

func phases(took map[string]time.Duration) []zap.Field {
	var fields []zap.Field
	for _, name := range slices.Sorted(maps.Keys(took)) {
		fields = append(fields, zap.Duration(name, took[name]))
	}
	return fields
}
