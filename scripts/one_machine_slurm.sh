#!/usr/bin/env bash
# A Slurm cluster of this one machine, for tests. It runs as root and listens on the loopback address.
#
#     scripts/one_machine_slurm.sh install            Debian's packages (slurm-wlm, munge)
#     scripts/one_machine_slurm.sh start FOLDER       daemons with all their files in FOLDER; prints SLURM_CONF=...
#     scripts/one_machine_slurm.sh start-slurmd FOLDER    the daemon that runs the jobs alone, after it was killed
#     scripts/one_machine_slurm.sh stop FOLDER
#
# Exit code 3: this machine cannot have it, for the reason printed.
set -euo pipefail

cannot() { echo "$1"; exit 3; }

install() {
    command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null && return
    [ "$(id -u)" = 0 ] || cannot "slurm-wlm and munge are not installed, and only root can install them"
    command -v apt-get >/dev/null || cannot "slurm-wlm and munge are not installed, and there is no apt-get"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends slurm-wlm munge; } >/dev/null 2>&1 ||
        cannot "apt-get could not install slurm-wlm and munge"
}

configure() {
    local memory_mb
    memory_mb=$(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
    mkdir -p "$folder/state" "$folder/spool"
    cat >"$SLURM_CONF" <<EOF
ClusterName=onemachine
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$((4 * $(nproc))) RealMemory=$memory_mb State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
}

start() {
    install
    [ "$(id -u)" = 0 ] || cannot "slurmd must be started by root"
    configure
    chmod 711 "$folder"
    dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 status=none
    chmod 600 "$folder/munge.key"
    munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munged.seed" || cannot "munged did not start"
    slurmctld -c || cannot "slurmctld did not start"
    slurmd -N "$host" || cannot "slurmd did not start"
    for _ in $(seq 100); do
        [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ] && { echo "SLURM_CONF=$SLURM_CONF"; return; }
        sleep 0.2
    done
    cannot "the node did not become idle within 20 s: $(tail -q -n 3 "$folder"/slurm*.log | tr '\n' ' ')"
}

stop() {
    scancel --user="$(id -un)" 2>/dev/null || true
    sleep 1
    for daemon in slurmd slurmctld munged; do
        pid=$(cat "$folder/$daemon.pid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 50); do  # it still writes to the folder until it has ended
            grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$pid/status" || break
            sleep 0.1
        done
    done
}

command=${1:-}
[ "$command" = install ] && { install; exit 0; }
folder=$(realpath -m "${2:?a folder for the files of the daemons}")
host=$(hostname -s)
port=26817
export SLURM_CONF=$folder/slurm.conf
case $command in
start) start ;;
start-slurmd) slurmd -N "$host" ;;
stop) stop ;;
*) echo "usage: $0 install | start FOLDER | start-slurmd FOLDER | stop FOLDER"; exit 2 ;;
esac
