package loglevel

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/zap"
)

// Whoever reaches the port from elsewhere does not change the log level.
func TestTheLogLevelIsForThePodAlone(t *testing.T) {
	t.Parallel()
	for caller, want := range map[string]int{
		"127.0.0.1:4711":        http.StatusOK,
		"[::1]:4711":            http.StatusOK,
		"[::ffff:127.0.0.1]:1":  http.StatusOK,
		"10.0.0.9:4711":         http.StatusOK, // the pod's own address
		"10.0.0.7:4711":         http.StatusForbidden,
		"[2001:db8::1]:4711":    http.StatusForbidden,
		"[::ffff:10.0.0.7]:471": http.StatusForbidden,
		"":                      http.StatusForbidden,
	} {
		request := httptest.NewRequest(http.MethodGet, Page, nil)
		request.RemoteAddr = caller
		request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey,
			&net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 9466}))
		answer := httptest.NewRecorder()
		fromHere(zap.NewAtomicLevel()).ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("%q: %d, want %d", caller, answer.Code, want)
		}
	}
}
