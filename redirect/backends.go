package redirect

// The names of what can write rules into a kernel, as configurations and records have them. Package
// redirect/backend finds what is behind them.
const (
	NFTables       = "nftables"
	IptablesNFT    = "iptables-nft"
	IptablesLegacy = "iptables-legacy"
)

// Backends lists them in the order of preference.
var Backends = []string{NFTables, IptablesNFT, IptablesLegacy}
