package node

import (
	"bytes"
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

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-cni/sidecar-cni/contract/names"
	"github.com/sidecar-cni/sidecar-cni/contract/record"
	"github.com/sidecar-cni/sidecar-cni/contract/serviceaccount"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/bounded"
	"github.com/sidecar-cni/sidecar-cni/sidecarctl/verdict"
)

const (
	aboutAPI = "API server"
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
	files, row := l.kept(dir)
	rows := []verdict.Row{row}
	token := bytes.TrimSpace(files[names.Token])
	if len(token) == 0 {
		return rows // which say so
	}
	claims, readable := serviceaccount.ReadToken(token)
	rows = append(rows, l.expiry(claims, readable))
	server := time.Time{}
	switch {
	case row.Verdict != verdict.OK:
		row = unknown(aboutAPI, "not asked: see the row credentials", "")
	case !readable: // it may be any secret
		row = unknown(aboutAPI, "not asked: what is in the file is no ServiceAccount's token", "")
	default:
		server, row = l.asked(ctx, files)
	}
	return append(rows, row, l.clock(server, claims))
}

// kept reads the files, and says whether they are there, and whether nobody but root can read them.
func (l *look) kept(dir string) (map[string][]byte, verdict.Row) {
	const about = "credentials"
	const remedy = "see why the agent does not write them: the row ready, and its log"
	files := map[string][]byte{}
	root, err := os.OpenRoot(l.files.at(dir))
	if err != nil {
		return files, unread(about, err.Error(), err, remedy)
	}
	defer func() { _ = root.Close() }() // nothing was written
	row := fine(about, dir+" has a kubeconfig, a token and the API server's certificates, "+
		"for root alone")
	for _, name := range []string{".", names.Kubeconfig, names.Token, names.CA} {
		path := filepath.Join(dir, name)
		data, err := credential(root, name)
		open, others := errors.AsType[*openToOthers](err)
		switch {
		case err == nil || row.Verdict != verdict.OK: // the first says it
		case others:
			row = wrong(about, path+" "+open.Error(), fmt.Sprintf("chown 0 %s; chmod go= %s; and "+
				"renew the token by deleting it, which the agent writes anew", path, path))
		default:
			row = unread(about, path+": "+err.Error(), err, remedy)
		}
		files[name] = data
	}
	return files, row
}

// credential reads a file of a directory, which no link leads out of. What others than root may
// read or write is returned with an error; the directory itself, ".", has no contents.
func credential(dir *os.Root, name string) ([]byte, error) {
	file, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, bounded.Reason(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, bounded.Reason(err)
	}
	var data []byte
	switch {
	case name == ".":
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	default:
		if data, err = bounded.Read(file, maxFile); err != nil {
			return nil, bounded.Reason(err)
		}
	}
	owner := uint32(0)
	if stat, known := info.Sys().(*syscall.Stat_t); known {
		owner = stat.Uid
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 || owner != 0 {
		return data, &openToOthers{mode, owner}
	}
	return data, nil
}

// openToOthers says of a file that others than root can read it.
type openToOthers struct {
	mode  fs.FileMode
	owner uint32
}

func (o *openToOthers) Error() string {
	return fmt.Sprintf("has mode %04o and belongs to uid %d: others than root can read it", o.mode,
		o.owner)
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
func (l *look) asked(ctx context.Context, files map[string][]byte) (time.Time, verdict.Row) {
	const about = aboutAPI
	server, err := serverIn(files[names.Kubeconfig])
	if err != nil {
		return time.Time{}, wrong(about, err.Error(), "the agent's next pass writes it anew")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(files[names.CA])
	client := &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: server.Name,
			MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/version", nil)
	if err != nil {
		return time.Time{}, wrong(about, err.Error(), "set the chart's apiServer to its URL")
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(files[names.Token])))
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, warning(about, "the plugin would not reach it while the agent is "+
			"away: "+err.Error(), "set the chart's apiServer to a URL that the node reaches, and "+
			"look at the node's network")
	}
	defer answer.Body.Close()
	date, _ := http.ParseTime(answer.Header.Get("Date")) // zero: it has not said
	switch {
	case answer.StatusCode >= http.StatusMultipleChoices &&
		answer.StatusCode < http.StatusBadRequest:
		return date, warning(about, server.URL+" redirects whoever asks: it is no API server",
			"set the chart's apiServer to its URL")
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

func serverIn(kubeconfig []byte) (server, error) {
	var config struct {
		Clusters []struct {
			Cluster server `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		return server{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if len(config.Clusters) == 0 || config.Clusters[0].Cluster.URL == "" {
		return server{}, errors.New("read the kubeconfig: it names no server")
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
