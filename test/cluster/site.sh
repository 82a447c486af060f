# The first process of a cluster's process namespace: it keeps the namespaces, adopts orphans, and ends everything when the
# test that holds the other end of its standard input ends, in whatever way.
set -euo pipefail
cgroup=$1

# The kubelet sets these for the whole machine. Where there is another cluster already, they are not as they were.
kernel=/proc/sys/kernel tunables=
if [[ -z $(find /sys/fs/cgroup -maxdepth 2 -type d -name "${cgroup%-*-*}-*") ]]; then
	for t in /proc/sys/vm/{overcommit_memory,panic_on_oom} $kernel/{panic,panic_on_oops,keys/root_maxkeys,keys/root_maxbytes}; do
		tunables+="$t $(<"$t") "
	done
fi

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 cluster /run
mkdir -p /run/cluster/log
echo ready
read -r _ || :

set -- $tunables
while (($#)); do
	echo "$2" >"$1"
	shift 2
done
# The nodes have seen the same end, and are dying.
for _ in {1..200}; do
	left=$(find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -print -exec rmdir {} + 2>/dev/null) || :
	[[ -n $left ]] || break
	sleep 0.05
done
