package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is how long the runtime may take. It is local, and answers at once or is in trouble.
const patience = 5 * time.Second

// AskRuntime asks the runtime itself, on its socket. Read only: it changes nothing.
//
// containerd tells its directories and its chain. CRI-O, up to 1.34 at least, tells neither.
func AskRuntime(ctx context.Context, socket string) (Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }()
	client := cri.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its version: %w", socket, err)
	}
	status, err := client.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return Runtime{}, fmt.Errorf("ask runtime at %s for its status: %w", socket, err)
	}
	r := Runtime{Name: version.GetRuntimeName(), Version: version.GetRuntimeVersion()}
	r.read(status)
	return r, nil
}

func (r *Runtime) read(status *cri.StatusResponse) {
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == cri.NetworkReady {
			r.NetworkReady, r.Message = c.GetStatus(), c.GetMessage()
		}
	}
	info := status.GetInfo()
	r.LastLoad = info["lastCNILoadStatus"]
	// What is missing or has another form stays unknown.
	var config struct {
		CNI struct {
			ConfDir string   `json:"confDir"`
			BinDir  string   `json:"binDir"`  // containerd 1
			BinDirs []string `json:"binDirs"` // containerd 2
		} `json:"cni"`
	}
	_ = json.Unmarshal([]byte(info["config"]), &config)
	r.ConfDir, r.BinDirs = config.CNI.ConfDir, config.CNI.BinDirs
	if dir := config.CNI.BinDir; dir != "" && !slices.Contains(r.BinDirs, dir) {
		r.BinDirs = append(r.BinDirs, dir)
	}
	loaded, known := parseChain([]byte(info["cniconfig"]))
	if !known {
		return
	}
	// What is in use counts more than what is configured.
	r.Chain, r.ConfDir, r.BinDirs = []byte(info["cniconfig"]), loaded.PluginConfDir, loaded.PluginDirs
}
