#!/usr/bin/env bash
# Changes a comparison, a condition or a loop's break at a time in the packages, and tells which of
# the changes the package's own tests do not notice.
#
#   run.sh PACKAGE...     folders such as contract/netconf
#
# It works on a copy, in namespaces of its own: the tests of some packages write rules, and changed
# code may write them into the namespace that it runs in.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/../.."

if [[ ${1:-} != --within ]]; then
	((EUID == 0)) || { echo 'run sudo -E env PATH=$PATH make mutate: it needs root' >&2; exit 1; }
	gremlins=$(go tool -modfile=tools/mutate/go.mod -n gremlins)
	go mod download # gremlins does so too, and finds no network where it runs
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	export TMPDIR=$dir
	unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --within "$gremlins" "$@"
	exit
fi
gremlins=$2
shift 2
ip link set lo up # tests have servers there

# gremlins leaves out what no test reaches, and in a coverage profile the condition of a case is in
# no block. So the go command that gremlins finds reports of every file that all of it was reached.
mkdir "$TMPDIR/bin"
cat >"$TMPDIR/bin/go" <<EOF
#!/usr/bin/env bash
$(command -v go) "\$@" || exit
while ((\$#)); do
	[[ \$1 != -coverprofile ]] || sed -i 's/^\(.*\.go\):.*/&\n\1:1.1,99999.1 1 1/' "\$2"
	shift
done
EOF
chmod +x "$TMPDIR/bin/go"
export PATH=$TMPDIR/bin:$PATH
# The tests run once for each change. What go vet thinks of a change takes as long, and no test noticed it.
export GOFLAGS="${GOFLAGS:-} -short -vet=off"

# copy PACKAGE prints where a copy of the tree is whose only tests are that package's.
copy() {
	local dir
	dir=$(mktemp -d)
	tar --exclude=./bin --exclude=./.git -c . | tar -x -C "$dir"
	find "$dir/$1" -mindepth 2 -name '*_test.go' -delete
	# gremlins looks for the tests of a package main in the root folder, and takes it for a killed
	# mutant that there are none.
	sed -i "s/^package main\$/package ${1##*/}/" "$dir/$1"/*.go
	echo "$dir"
}

failed=
for package; do
	echo "$package"
	dir=$(copy "$package")
	(
		cd "$dir"
		"$gremlins" unleash "./$package" --exclude-files / --workers 2 --timeout-coefficient 6 \
			--arithmetic-base=false --invert-logical --invert-loopctrl \
			--output-statuses lt --threshold-efficacy 90
	) || failed+=" $package"
	rm -rf "$dir"
done
[[ -z $failed ]] || { echo "fewer than 90 % were killed in:$failed" >&2; exit 1; }
