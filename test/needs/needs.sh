#!/usr/bin/env bash
# What make's targets need of the machine.
#
#   needs.sh [--install] TARGET...
#
# names in one line what is missing, and fails. With --install it installs that first, by apt-get or
# dnf, as root. It is called by make and .ci/run, which add the administrator's folders to the PATH.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/../.."

# A file that distributions have under different names is written name|name. The columns are: a
# program or file, the package of Debian and Ubuntu, the package of Fedora, and the targets.
table='
git              git             git                 test race mutate image e2e
ip               iproute2        iproute             test race mutate e2e
nft              nftables        nftables            test race mutate e2e
iptables-nft     iptables        iptables-nft        test race mutate e2e
iptables-legacy  iptables        iptables-legacy     test race mutate e2e
conntrack        conntrack       conntrack-tools     test race mutate e2e
modprobe         kmod            kmod                test race mutate e2e
strace           strace          strace              test race mutate e2e
ps               procps          procps-ng           test race mutate e2e
mount            mount           util-linux          test race mutate e2e
unshare          util-linux      util-linux          test race mutate e2e
flock            util-linux      util-linux          test race mutate e2e
containerd       containerd      containerd          test race mutate e2e
runc             runc            runc                test race mutate e2e
gcc              gcc             gcc                 race e2e
pkg-config       pkg-config      pkgconf-pkg-config  e2e
haproxy          haproxy         haproxy             e2e
make             make            make                image e2e
buildah          buildah         buildah             image e2e
/usr/include/stdio.h    libc6-dev       glibc-devel       race e2e
/usr/include/seccomp.h  libseccomp-dev  libseccomp-devel  e2e
/etc/ssl/certs/ca-certificates.crt|/etc/pki/ca-trust/extracted ca-certificates ca-certificates all
'

fail() {
	echo "$*" >&2
	exit 1
}

# here NAME tells whether a program is on the PATH, or a file is there under one of its names.
here() {
	local file
	if [[ $1 != /* ]]; then
		command -v "$1" >/dev/null
		return
	fi
	for file in ${1//|/ }; do
		[[ -e $file ]] && return
	done
	return 1
}

# wanted TARGETS tells whether one of those that we were asked about is among them.
wanted() {
	local target
	[[ $1 != all ]] || return 0
	for target in "${targets[@]}"; do
		[[ " $1 " == *" $target "* ]] && return
	done
	return 1
}

# look sets names to what is missing, and packages to what has it.
look() {
	local need debian fedora users package
	names=() packages=()
	while read -r need debian fedora users; do
		[[ -n $need ]] || continue
		! wanted "$users" || here "$need" && continue
		package=$debian
		[[ $installer != dnf ]] || package=$fedora
		[[ $need != /* ]] || need=$package # which says more than the file's name
		names+=("$need")
		[[ " ${packages[*]} " == *" $package "* ]] || packages+=("$package")
	done <<<"$table"
}

# listed A B C prints A, B, C.
listed() {
	local all
	printf -v all '%s, ' "$@"
	printf '%s' "${all%, }"
}

install_packages() {
	echo "installing ${packages[*]}" >&2
	if [[ $installer == dnf ]]; then
		dnf install -y -q --setopt=install_weak_deps=False "${packages[@]}" >/dev/null
		return
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# require_go fails without Go, which distributions have too old a version of.
require_go() {
	local word version more=
	! here go || return 0
	while read -r word version; do
		[[ $word != go ]] || break
	done <go.mod
	((${#names[@]} == 0)) || more=", and $(listed "${names[@]}"), which $target INSTALL=1 installs"
	fail "$target needs Go $version or newer on the PATH, from https://go.dev/dl$more"
}

install=no
[[ ${1:-} != --install ]] || { install=yes && shift; }
targets=("$@") target="make $1" installer=
if here apt-get; then
	installer=apt-get
elif here dnf; then
	installer=dnf
fi
look
require_go
((${#names[@]})) || exit 0
all=$(listed "${names[@]}")
[[ $install == yes ]] || fail "$target needs $all: install them, or run $target INSTALL=1"
[[ -n $installer ]] || fail "$target needs $all: install them; INSTALL=1 needs apt-get or dnf"
((EUID == 0)) || fail "$target needs $all: INSTALL=1 installs them as root only"
install_packages
look
((${#names[@]} == 0)) ||
	fail "$target needs $(listed "${names[@]}"), and the installed ${packages[*]} does not have it"
