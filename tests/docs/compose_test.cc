// Checks compose.yaml, alone and with docker/compose.cuda.yaml: the state folder is in a named
// volume, the same for both, so jobs and models survive `docker compose down`, a new image, and the
// change from one to the other.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/source_path.h"

namespace trainyard {
namespace {

YAML::Node read(const std::string& path) { return YAML::LoadFile(testing::source_path(path)); }

/// Returns the mounts of the service, source by path in the container, as compose merges those of
/// several files: a later file replaces the mount of the same path.
std::map<std::string, std::string> mounts(std::initializer_list<std::string> files) {
  std::map<std::string, std::string> found;
  for (const std::string& file : files) {
    for (const YAML::Node& mount : read(file)["services"]["trainyardd"]["volumes"]) {
      EXPECT_TRUE(mount.IsScalar()) << file << ": expected SOURCE:PATH[:ro]";
      const auto text = mount.as<std::string>();
      const size_t path = text.find(':') + 1;
      found[text.substr(path, text.find(':', path) - path)] = text.substr(0, path - 1);
    }
  }
  return found;
}

/// Returns the mount that contains a path of the container; empty if it is in none.
std::string mount_of(std::string path, const std::map<std::string, std::string>& mounts) {
  while (!path.empty()) {
    if (const auto found = mounts.find(path); found != mounts.end()) return found->second;
    path.resize(path.rfind('/'));
  }
  return "";
}

const std::string kCpu = "compose.yaml", kCuda = "docker/compose.cuda.yaml";

TEST(Compose, TheStateIsInTheSameNamedVolumeWithAndWithoutGpus) {
  const auto state = read("docker/trainyardd.yaml")["state_dir"].as<std::string>();
  const std::string volume = mount_of(state, mounts({kCpu}));
  ASSERT_FALSE(volume.empty()) << state << " is in no mount, so it ends with the container";
  EXPECT_EQ(volume.find_first_of("./~$"), std::string::npos) << volume << " is no named volume";
  EXPECT_EQ(mount_of(state, mounts({kCpu, kCuda})), volume);
  // Compose prefixes a volume's name with the project's, which by default is the folder's name: a
  // newer checkout in another folder would begin with an empty volume.
  EXPECT_TRUE(read(kCpu)["name"]) << kCpu << " has no name for the project";
  EXPECT_FALSE(read(kCuda)["name"]) << kCuda << " renames the project, and so its volumes";
  const YAML::Node declared = read(kCpu)["volumes"];
  EXPECT_TRUE(declared[volume].IsDefined()) << volume << " is not declared";
  EXPECT_FALSE(read(kCuda)["volumes"]) << kCuda << " changes volumes";
}

TEST(Compose, TheDaemonReadsTheSettingsThatThisTestReads) {
  const YAML::Node service = read(kCpu)["services"]["trainyardd"];
  const auto command = service["command"].as<std::vector<std::string>>();
  ASSERT_GE(command.size(), 2);
  ASSERT_EQ(command[0], "--config");
  EXPECT_EQ(mounts({kCpu, kCuda})[command[1]], "./docker/trainyardd.yaml");
  EXPECT_FALSE(read(kCuda)["services"]["trainyardd"]["command"]);
  for (const std::string& word : command) EXPECT_NE(word, "--state-dir");
}

TEST(Compose, ContainersAreStoppedAfterTheJobsHaveSavedCheckpoints) {
  const auto grace = read(kCpu)["services"]["trainyardd"]["stop_grace_period"].as<std::string>();
  ASSERT_EQ(grace.back(), 's') << grace;
  EXPECT_GT(std::stoi(grace), read("docker/trainyardd.yaml")["drain_seconds"].as<int>());
}

TEST(Compose, EachFileUsesTheImageOfItsOwnTarget) {
  for (const auto& [file, target] : {std::pair{kCpu, "cpu"}, std::pair{kCuda, "cuda"}}) {
    const YAML::Node service = read(file)["services"]["trainyardd"];
    EXPECT_EQ(service["image"].as<std::string>(), std::string("trainyard:") + target);
    EXPECT_EQ(service["build"]["target"].as<std::string>(), target);
  }
}

}  // namespace
}  // namespace trainyard
