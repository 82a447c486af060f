# The first process of a node. It makes the node's root of the machine's own, read through an overlay, and of folders of the
# node's disk: whatever is written stays in the node. What is on the disk survives the node's restart, /run does not.
set -euo pipefail
disk=$1 name=$2
shift 2

root=$disk/root
mkdir -p "$disk"/{upper,work,root}
mount --make-rprivate /
mount -t overlay -o "index=off,lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$name" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
# These are empty at first whatever the machine has there, and lie on the disk itself: an overlay cannot lie on an overlay.
for folder in /etc/cni /etc/kubernetes /opt/cni /var/lib/cni /var/lib/containerd /var/lib/kubelet /var/log; do
	mkdir -p "$disk/own$folder" "$root$folder"
	mount --bind "$disk/own$folder" "$root$folder"
done
for programs; do
	mkdir -p "$root$programs"
	mount --bind "$programs" "$root$programs"
done
mkdir -p "$root"/opt/cni/bin "$root"/etc/cni/net.d "$root"/run/{containerd,netns,lock}

cd "$root"
pivot_root . .
umount -l .
cd /
mount --make-rshared /
hostname "$name"
echo ready
read -r _ || :
