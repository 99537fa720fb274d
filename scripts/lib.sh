# scripts/lib.sh: functions for the other scripts. Sourced, not run.

# The number of compilers to run at once: one per core, but no more than fit in the free memory, because a
# unit that includes gRPC or GoogleTest takes up to about 1.5 GiB.
build_jobs() {
  local cores available_mib by_memory
  cores=$(nproc)
  available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  by_memory=$((available_mib / 1536))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

# make_root SUITE FOLDER: a bare Debian from the mirror and proxy that this machine's apt uses, so that it works wherever apt
# does. What debootstrap says goes to FOLDER.log.
make_root() {
  local suite=$1 folder=$2 mirror
  # shellcheck disable=SC2016  # the dollars are apt's
  mirror=$(LC_ALL=C apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk '$2 == "bookworm" { print $1; exit }')
  [[ -n $mirror ]] || { echo "apt knows no mirror of Debian 12" >&2; return 1; }
  rm -rf "$folder"
  debootstrap --variant=minbase "$suite" "$folder" "$mirror" >"$folder.log" 2>&1 ||
    { tail -n 20 "$folder.log" >&2; echo "debootstrap $suite failed (above)" >&2; return 1; }
  apt-config dump | grep -E '^Acquire::[a-z]+::Proxy ' >"$folder/etc/apt/apt.conf.d/99proxy" || true
}
