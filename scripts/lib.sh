# scripts/lib.sh: functions that the other scripts source.

# Prints the number of compilers to run in parallel: one per core, but no more than fit in the free memory, because the
# largest units take up to 2.2 GiB.
build_jobs() {
  local cores available_mib by_memory
  cores=$(nproc)
  available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  by_memory=$((available_mib / 2304))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

# make_root SUITE FOLDER: creates a bare Debian with the mirror and proxy of this machine's apt, so that it works wherever apt
# does. The output of debootstrap goes to FOLDER.log.
make_root() {
  local suite=$1 folder=$2 mirror
  # shellcheck disable=SC2016  # apt expands the dollars
  mirror=$(LC_ALL=C apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk '$2 == "bookworm" { print $1; exit }')
  [[ -n $mirror ]] || { echo "apt knows no mirror of Debian 12" >&2; return 1; }
  rm -rf "$folder"
  debootstrap --variant=minbase "$suite" "$folder" "$mirror" >"$folder.log" 2>&1 ||
    { tail -n 20 "$folder.log" >&2; echo "debootstrap $suite failed (above)" >&2; return 1; }
  apt-config dump | grep -E '^Acquire::[a-z]+::Proxy ' >"$folder/etc/apt/apt.conf.d/99proxy" || true
}

# run_tests BUILD_FOLDER CTEST_ARGUMENTS...: runs CTest, then runs the failed tests again, one at a time. Sets the array
# flaky_tests to those that passed only then. Fails if a test failed twice, or if more than flaky_tests_max are flaky.
flaky_tests=()
readonly flaky_tests_max=3
run_tests() {
  local folder=$1 log=$1/Testing/Temporary/LastTestsFailed.log status=0 failed again=
  shift
  rm -f "$log"
  ctest "$@" || status=$?
  ((status != 0)) || return 0
  [[ -s $log ]] || return "$status"  # no test failed, but CTest itself
  failed=$(failed_tests "$log")
  printf '\n== %d failed: once more, one at a time\n' "$(wc -l <<<"$failed")"
  status=0
  ctest --test-dir "$folder" --output-on-failure --rerun-failed -j 1 || status=$?
  ((status == 0)) || again=$(failed_tests "$log")
  mapfile -t flaky_tests < <(comm -23 <(echo "$failed") <(echo "$again"))
  report_flaky_tests
  if ((status != 0)); then
    printf 'test: failed twice: %s\n' "${again//$'\n'/ }" >&2
    return 1
  fi
  ((${#flaky_tests[@]} <= flaky_tests_max))
}
failed_tests() { sed 's/^[0-9]*://' "$1" | sort; }
report_flaky_tests() {
  ((${#flaky_tests[@]} > 0)) || return 0
  printf '\n== %d passed only when run again by themselves; mend them next (more than %d fail the run)\n' \
    "${#flaky_tests[@]}" "$flaky_tests_max"
  printf '  %s\n' "${flaky_tests[@]}"
}

# with_busy_loops COUNT COMMAND...: runs a command while COUNT processes keep the processors busy. They end with the command, or
# soon after the script if the script is killed.
with_busy_loops() (
  loops=()
  trap 'kill "${loops[@]}" 2>/dev/null' EXIT
  for ((loop = 0; loop < $1; ++loop)); do
    while kill -0 $$ 2>/dev/null; do for ((turn = 0; turn < 100000; ++turn)); do :; done; done &
    loops+=($!)
  done
  shift
  "$@"
)
