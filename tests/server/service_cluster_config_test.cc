// Tests of clusters' configuration files, and of the spec of a job that names a cluster.
#include <gtest/gtest.h>

#include <fstream>

#include "server/config/cluster.h"
#include "server/config/config.h"
#include "server/planning/cluster_devices.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

constexpr const char* kWhole = R"(
name: slurm
kind: slurm
cluster: hpc
partition: gpu
account: lab-7
qos: normal
cpus: 8
memory: 64GiB
gpus_per_node: 4
gpu_type: a100
gpu_memory: 80GiB
time_limit: 12h
waiting_max: 6
poll_seconds: 15
lease_seconds: 3600
worker: /opt/trainyard/bin/trainyard-worker
cache: /scratch/trainyard
cache_bytes: 1TiB
commands: /usr/local/slurm/bin
output: /var/log/slurm/%j.log
measure_nodes: false
price_per_hour: 2.5
)";

TEST(ClusterConfig, ReadsAllKnownKeys) {
  const Result<ClusterConfig> cluster = parse_cluster(kWhole, "p.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->name, "slurm");
  EXPECT_EQ(cluster->slurm_cluster, "hpc");
  EXPECT_EQ(cluster->cpus, 8);
  EXPECT_EQ(cluster->memory_bytes, int64_t{64} << 30);
  EXPECT_EQ(cluster->gpu_memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(cluster->time_limit_seconds, 12 * 3600);
  EXPECT_EQ(cluster->cache_bytes, int64_t{1} << 40);
  EXPECT_EQ(cluster->worker, "/opt/trainyard/bin/trainyard-worker");
  EXPECT_FALSE(cluster->measure_nodes);
  EXPECT_TRUE(ClusterConfig().measure_nodes);
  EXPECT_EQ(cluster->price_per_hour, 2.5);
}

TEST(ClusterConfig, RefusesUnknownKeysWithTheirLine) {
  const std::string base = "name: s\nkind: slurm\nworker: /w\ncache: /c\n";
  ASSERT_TRUE(parse_cluster(base, "p").ok());
  const struct {
    std::string more, expected;
  } kCases[] = {
      {"partion: x\n", "p:5: unknown key 'partion', did you mean 'partition'?"},
      {"partition: \"a; rm -rf /\"\n", "p:5: partition: 'a; rm -rf /' is not valid"},
      {"account: --uid=0\n", "p:5: account: '--uid=0' is not valid"},
      {"cpus: 0\n", "p:5: cpus: '0' is not valid, expected a number from 1 to 256"},
      {"memory: much\n", "p:5: memory: 'much' is not valid, expected a number of bytes"},
      {"time_limit: 5s\n", "p:5: time_limit: '5s' is not valid, expected a time from 60s to 365d"},
      {"commands: bin\n", "p:5: commands: 'bin' is not valid, expected an absolute path"},
      {"measure_nodes: maybe\n",
       "p:5: measure_nodes: 'maybe' is not valid, expected true or false"},
      {"price_per_hour: -1\n", "p:5: price_per_hour: '-1' is not valid, expected a number from 0"},
      {"price_per_hour: nan\n", "p:5: price_per_hour: 'nan' is not valid"},
      {"kind: k8s\n", "p:5: key 'kind' is given twice"},
      {"gpu_type: a100\n", "p: gpu_type and gpu_memory need gpus_per_node"},
      {"cpus: [1]\n", "p:5: 'cpus' expects one plain value"},
  };
  for (const auto& c : kCases) {
    const Result<ClusterConfig> cluster = parse_cluster(base + c.more, "p");
    ASSERT_FALSE(cluster.ok()) << c.more;
    EXPECT_TRUE(cluster.error().message.starts_with(c.expected)) << cluster.error().message;
    EXPECT_EQ(cluster.error().reason, "CONFIG_INVALID");
  }
  EXPECT_EQ(parse_cluster("name: s\nkind: slurm\nworker: /w\n", "p").error().message,
            "p: cache is missing; a cluster needs name, kind, worker and cache");
  EXPECT_EQ(parse_cluster("name: S\n", "p").error().message.substr(0, 10), "p:1: name:");
  EXPECT_EQ(parse_cluster("kind: k8s\n", "p").error().message,
            "p:1: kind: 'k8s' is not valid, expected slurm");
  EXPECT_FALSE(parse_cluster("- a\n", "p").ok());
  EXPECT_FALSE(parse_cluster("a: [", "p").ok());
}

TEST(ClusterConfig, RefusesADuplicateName) {
  const TemporaryDirectory folder;
  for (const char* file : {"a.yaml", "b.yaml"}) {
    std::ofstream(folder.path() / file) << "name: s\nkind: slurm\nworker: /w\ncache: /c\n";
  }
  Config config;
  ASSERT_TRUE(apply_setting("cluster", (folder.path() / "a.yaml").string(), config).ok());
  const Status again = apply_setting("cluster", (folder.path() / "b.yaml").string(), config);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("another cluster already has the name 's'"),
            std::string::npos);
  EXPECT_FALSE(apply_setting("cluster", "a.yaml", config).ok());
  EXPECT_FALSE(apply_setting("cluster", (folder.path() / "none.yaml").string(), config).ok());
  ASSERT_EQ(config.clusters.size(), 1u);
  Config printed;
  ASSERT_TRUE(apply_config_text(describe_config(config), "f", printed).ok());
  EXPECT_EQ(printed.clusters.at(0).name, "s");
}

TEST(ClusterDevices, FillInASpec) {
  const std::vector<ClusterConfig> clusters = {
      *parse_cluster(kWhole, "p"), *parse_cluster("name: cpus\nkind: slurm\nworker: /w\n"
                                                  "cache: /c\ncpus: 3\n",
                                                  "q")};
  v1::Resources resources;
  resources.set_cluster("slurm");
  Violations none;
  resolve_cluster(clusters, resources, none);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(resources.device(), v1::Resources::GPU);
  EXPECT_EQ(resources.threads(), 8);
  v1::Resources on_cpu;
  on_cpu.set_cluster("cpus");
  on_cpu.set_device(v1::Resources::AUTO);
  resolve_cluster(clusters, on_cpu, none);
  EXPECT_EQ(on_cpu.device(), v1::Resources::CPU);
  EXPECT_EQ(on_cpu.threads(), 3);
  const Devices node = devices_of(clusters[0]);
  EXPECT_EQ(node.devices.size(), 5u);
  EXPECT_EQ(node.devices[1].memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(node.cluster, "slurm");
}

TEST(ClusterDevices, NameTheWrongField) {
  const std::vector<ClusterConfig> clusters = {
      *parse_cluster(kWhole, "p"), *parse_cluster("name: cpus\nkind: slurm\nworker: /w\n"
                                                  "cache: /c\n",
                                                  "q")};
  const auto refusal = [&](const auto& fill, std::span<const ClusterConfig> known) {
    v1::Resources resources;
    fill(resources);
    Violations violations;
    resolve_cluster(known, resources, violations);
    return violations.empty() ? std::string() : violations.to_error().message;
  };
  EXPECT_EQ(refusal([](v1::Resources& r) { r.set_cluster("slrum"); }, clusters),
            "resources.cluster: 'slrum' is not known, expected slurm or cpus");
  EXPECT_EQ(
      refusal([](v1::Resources& r) { r.set_cluster("slurm"); }, {}),
      "resources.cluster: 'slurm' is not known, and this server has no clusters; leave it out to "
      "train on the server's own devices");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_cluster("cpus");
                  r.set_device(v1::Resources::GPU);
                },
                clusters),
            "resources.device: gpu is not available in the cluster cpus, expected auto or cpu");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_cluster("slurm");
                  r.set_gpus(8);
                },
                clusters),
            "resources.gpus: 8 is more than a node of the cluster slurm has, expected 1..4");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_cluster("slurm");
                  r.set_exclusive(true);
                },
                clusters)
                .substr(0, 21),
            "resources.exclusive: ");
  EXPECT_EQ(refusal([](v1::Resources&) {}, clusters), "");
}

}  // namespace
}  // namespace trainyard::server
