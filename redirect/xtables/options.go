package xtables

import (
	"github.com/sidecar-cni/sidecar-cni/redirect"
	"github.com/sidecar-cni/sidecar-cni/redirect/packet"
)

// option is a word with dashes, and how its value gets into the rule.
type option struct {
	names string // every spelling
	read  func(d *draft, value string, not bool) error
	verb  redirect.Verb // of one without a value; read is nil
}

// module is what -m or -j names.
type module struct {
	options   []option
	needs     bool                // one of the options, or more
	protocols []redirect.Protocol // -p must say one of these
	tables    []redirect.Table    // that it is for; nil: all
	hook      redirect.Hook       // from which alone it can be reached
	verb      redirect.Verb       // of a target
}

// general is what every rule may have.
var general = module{options: []option{
	{names: "-m --match", read: (*draft).match},
	{names: "-j --jump", read: (*draft).jump},
	{names: "-s --source --src", read: asks(network, packet.Source)},
	{names: "-d --destination --dst", read: asks(network, packet.Destination)},
	{names: "-i --in-interface", read: asks(names, in)},
	{names: "-o --out-interface", read: asks(names, out)},
	{names: "-p --protocol --proto", read: asksProtocol},
}}

var ported = []option{
	{names: "--sport --source-port", read: asks(ports, packet.SourcePort)},
	{names: "--dport --destination-port", read: asks(ports, packet.DestinationPort)},
}

var multiported = []option{
	{names: "--sports --source-ports", read: asks(portList, packet.SourcePort)},
	{names: "--dports --destination-ports", read: asks(portList, packet.DestinationPort)},
	{names: "--ports", read: asks(portList, packet.SourcePort, packet.DestinationPort)},
}

var withPorts = []redirect.Protocol{redirect.TCP, redirect.UDP}

// tracked is where packets have a connection. In raw, state and mark of one mean something else.
var tracked = []redirect.Table{redirect.Mangle, redirect.NAT}

var matches = map[string]module{
	"tcp":       {options: ported, protocols: withPorts[:1]},
	"udp":       {options: ported, protocols: withPorts[1:]},
	"multiport": {options: multiported, needs: true, protocols: withPorts},
	"comment":   {needs: true, options: []option{{names: "--comment", read: only()}}},
	"mark": {needs: true, options: []option{
		{names: "--mark", read: asks(marks, packet.PacketMark)}}},
	"connmark": {needs: true, tables: tracked, options: []option{
		{names: "--mark", read: asksConnMark}}},
	"conntrack": {needs: true, tables: tracked, options: []option{
		{names: "--ctstate", read: asks(states, packet.State)}}},
	"state": {needs: true, tables: tracked, options: []option{
		{names: "--state", read: asks(states, packet.State)}}},
	"owner": {needs: true, hook: redirect.Output, options: []option{
		{names: "--uid-owner", read: asksOwner(packet.UID)},
		{names: "--gid-owner", read: asksOwner(packet.GID)}}},
}

var targets = map[string]module{
	"RETURN": {verb: redirect.Return},
	"ACCEPT": {verb: redirect.Accept},
	"DROP":   {verb: redirect.Drop},
	"REDIRECT": {verb: redirect.Redirect, needs: true, tables: []redirect.Table{redirect.NAT},
		protocols: withPorts, options: []option{
			{names: "--to-ports --to-port", read: sets(16, setPort)}}},
	"TPROXY": {verb: redirect.TProxy, needs: true, tables: []redirect.Table{redirect.Mangle},
		protocols: withPorts, hook: redirect.Prerouting, options: []option{
			{names: "--on-port", read: sets(16, setPort)},
			{names: "--on-ip", read: only("0.0.0.0", "::")},
			{names: "--tproxy-mark", read: setTProxyMark}}},
	"MARK": {verb: redirect.SetMark, needs: true, options: []option{
		{names: "--set-mark --set-xmark", read: sets(32, setMark)}}},
	"CONNMARK": {needs: true, tables: tracked, options: []option{
		{names: "--save-mark", verb: redirect.SaveMark},
		{names: "--restore-mark", verb: redirect.RestoreMark},
		{names: "--nfmask --mask", read: only("0xffffffff")},
		{names: "--ctmask", read: only("0xffffffff")}}},
	"CT": {verb: redirect.SetZone, needs: true, tables: []redirect.Table{redirect.Raw},
		options: []option{{names: "--zone", read: sets(16, setZone)}}},
}
