package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

const (
	// soon is when a token should have been renewed that has not run out yet.
	soon = 15 * time.Minute
	// skew is by how much clocks may differ.
	skew = 30 * time.Second
)

// credentials say with what the plugin asks the API server while the agent is away, and whether it
// is answered.
func (l *look) credentials(ctx context.Context) []verdict.Row {
	dir := filepath.Dir(l.entry.Kubeconfig)
	if !l.found {
		dir = filepath.Join(l.confDir, names.CredentialsDir)
	}
	rows := []verdict.Row{l.kept(dir)}
	token, err := l.files.read(filepath.Join(dir, names.Token))
	if err != nil {
		return rows // which say so
	}
	claims, readable := serviceaccount.ReadToken([]byte(strings.TrimSpace(string(token))))
	rows = append(rows, l.expiry(claims, readable))
	server, row := l.asked(ctx, dir, token)
	rows = append(rows, row)
	return append(rows, l.clock(server, claims))
}

// kept says whether the files are there, and whether nobody but root can read them.
func (l *look) kept(dir string) verdict.Row {
	const about = "credentials"
	const remedy = "see why the agent does not write them: the row ready, and its log"
	for _, name := range []string{"", names.Kubeconfig, names.Token, names.CA} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(l.files.at(path))
		if err != nil {
			return unread(about, err.Error(), err, remedy)
		}
		owner := uint32(0)
		if stat, known := info.Sys().(*syscall.Stat_t); known {
			owner = stat.Uid
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 || owner != 0 {
			return wrong(about, fmt.Sprintf("%s has mode %04o and belongs to uid %d: others than "+
				"root can read it", path, mode, owner),
				fmt.Sprintf("chown 0 %s; chmod go= %s; and renew the token by deleting it, which "+
					"the agent writes anew", path, path))
		}
	}
	return fine(about, dir+" has a kubeconfig, a token and the API server's certificates, "+
		"for root alone")
}

func (l *look) expiry(c serviceaccount.Claims, readable bool) verdict.Row {
	const about = "token"
	const remedy = "see why the agent gets no new one: its log says so"
	expires := c.Expires.Time()
	left := expires.Sub(l.options.Now).Round(time.Second)
	who := cmp.Or(c.Subject, "nobody that it names")
	switch {
	case !readable:
		return unknown(about, "it has another form than that of a ServiceAccount's", "")
	case expires.IsZero():
		return fine(about, "of "+who+"; it does not run out")
	case left <= 0:
		return wrong(about, fmt.Sprintf("of %s; it ran out %s ago", who, -left), remedy)
	case left < soon:
		return warning(about, fmt.Sprintf("of %s; it runs out in %s", who, left), remedy)
	}
	age := ""
	if issued := c.Issued.Time(); !issued.IsZero() {
		age = fmt.Sprintf("issued %s ago, ", l.options.Now.Sub(issued).Round(time.Second))
	}
	return fine(about, fmt.Sprintf("of %s; %sit runs out in %s", who, age, left))
}

// asked asks the API server as the plugin would, for nothing but its version, and returns the time
// by its clock; zero if it has not said.
func (l *look) asked(ctx context.Context, dir string, token []byte) (time.Time, verdict.Row) {
	const about = "API server"
	server, err := l.server(filepath.Join(dir, names.Kubeconfig))
	if err != nil {
		return time.Time{}, unread(about, err.Error(), err, "the agent's next pass writes it anew")
	}
	authority, _ := l.files.read(filepath.Join(dir, names.CA)) // without it nobody is trusted
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: server.Name,
			MinVersion: tls.VersionTLS12}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/version", nil)
	if err != nil {
		return time.Time{}, wrong(about, err.Error(), "set the chart's apiServer to its URL")
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, warning(about, "the plugin would not reach it while the agent is "+
			"away: "+err.Error(), "set the chart's apiServer to a URL that the node reaches, and "+
			"look at the node's network")
	}
	defer answer.Body.Close()
	date, _ := http.ParseTime(answer.Header.Get("Date")) // zero: it has not said
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		return date, wrong(about, server.URL+" does not accept the plugin's token",
			"see why the agent gets no new one: its log says so")
	case answer.StatusCode >= http.StatusInternalServerError:
		return date, warning(about, fmt.Sprintf("%s answers %s", server.URL, answer.Status), "")
	}
	return date, fine(about, server.URL+" answers the plugin's token")
}

// server is how a kubeconfig says that the API server is reached.
type server struct {
	URL  string `json:"server"`
	Name string `json:"tls-server-name"` // in its certificate; "" is the URL's
}

func (l *look) server(path string) (server, error) {
	data, err := l.files.read(path)
	if err != nil {
		return server{}, err
	}
	var config struct {
		Clusters []struct {
			Cluster server `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return server{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(config.Clusters) == 0 || config.Clusters[0].Cluster.URL == "" {
		return server{}, fmt.Errorf("read %s: it names no server", path)
	}
	return config.Clusters[0].Cluster, nil
}

// clock compares the node's with the API server's, which issues and judges tokens.
func (l *look) clock(server time.Time, c serviceaccount.Claims) verdict.Row {
	const about = "clock"
	const remedy = "have a time service on the node: tokens are refused, or used too long"
	issued := c.Issued.Time()
	switch {
	case !server.IsZero():
		off := l.options.Now.Sub(server).Round(time.Second)
		if off.Abs() > skew {
			return wrong(about, fmt.Sprintf("it differs by %s from the API server's", off), remedy)
		}
		return fine(about, "it agrees with the API server's")
	case issued.IsZero():
		return unknown(about, "nobody says how late it is", "")
	case issued.After(l.options.Now.Add(skew)):
		return wrong(about, fmt.Sprintf("it is %s before the time at which the token was issued",
			issued.Sub(l.options.Now).Round(time.Second)), remedy)
	}
	return unknown(about, "the API server has not told its time; the token was not issued in the "+
		"future", "")
}

// records says what the plugin has recorded.
func (l *look) records() verdict.Row {
	const about = "records"
	dir := l.entry.StateDir
	if !l.found {
		dir = filepath.Join(l.runDir, names.Records)
	}
	info, err := os.Stat(l.files.at(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fine(about, dir+" is not there yet: no pod was redirected since the node has "+
			"started")
	case err != nil:
		return unknown(about, err.Error(), "run this as root")
	case !info.IsDir():
		return wrong(about, dir+" is no directory", "remove it")
	}
	all, err := record.Dir(l.files.at(dir)).Heads()
	if err != nil {
		return unread(about, strings.ReplaceAll(err.Error(), "\n", "; "), err,
			"delete the pods whose records they are, so that they are created anew")
	}
	return fine(about, fmt.Sprintf("%d in %s", len(all), dir))
}
