package server

import (
	"net/http"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// logErrors has a server log what goes wrong outside of its handlers. Handshakes fail by whoever
// happens to knock at the port: they are logged at debug, and not all.
func logErrors(of *http.Server, to *zap.Logger) *http.Server {
	of.ErrorLog = zap.NewStdLog(to)
	of.ErrorLog.SetOutput(&errorLog{to: to, handshakes: rate.NewLimiter(1, 10)})
	return of
}

type errorLog struct {
	to         *zap.Logger
	handshakes *rate.Limiter
}

func (l *errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	switch {
	case !strings.Contains(text, "TLS handshake error"):
		l.to.Warn("reported by the HTTP server", zap.String("problem", text))
	case l.handshakes.Allow():
		l.to.Debug("refused handshake", zap.String("problem", text))
	}
	return len(line), nil
}
