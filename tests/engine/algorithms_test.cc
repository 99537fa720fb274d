// The tests catch a problem that gets another algorithm the second time, be it in the same process,
// in the next one, in two concurrent processes or after a resume; a choice that is timed but not
// recorded; a damaged or foreign file that ends a job or is lost; a record that is read back as
// another.
#include "src/runtime/algorithms.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

const std::string kClass = "A GPU, compute capability 9.0";
const std::string kKey = "matmul sizes=1,2,3";

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "algorithms-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::permissions(path_, fs::perms::owner_all, ignored);
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  /// Returns the only file of choices in the folder.
  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().extension() == ".json") return entry.path();
    }
    return {};
  }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(file()).rdbuf();
    return out.str();
  }

 private:
  fs::path path_;
};

/// A library whose fastest algorithm is set by the test.
struct Library {
  std::string fastest = "fast";
  std::set<std::string> refused;
  std::chrono::milliseconds takes{0};  // how long timing a problem takes
  int timed = 0;
  std::string taken;

  AlgorithmProblem problem() {
    return {[this](const std::string& choice) {
              if (refused.contains(choice)) return false;
              taken = choice;
              return true;
            },
            [this]() -> std::optional<std::string> {
              taken = "first";
              return taken;
            },
            [this]() -> std::optional<TimedChoice> {
              ++timed;
              std::this_thread::sleep_for(takes);
              return TimedChoice{fastest, 3, 4.0, 2.5};
            }};
  }
  std::string ask(Algorithms& algorithms, const std::string& key = kKey) {
    EXPECT_TRUE(algorithms.choose(kClass, key, problem()));
    return taken;
  }
};

std::string all(const std::vector<std::string>& messages) {
  std::string text;
  for (const std::string& m : messages) text += m + "\n";
  return text;
}

TEST(Algorithms, AreTimedOnceAndKept) {
  const Folder folder;
  Library library;
  Algorithms first({folder.path()});
  EXPECT_EQ(library.ask(first), "fast");
  library.fastest = "another day";
  EXPECT_EQ(library.ask(first), "fast");
  Algorithms second({folder.path()});
  EXPECT_EQ(library.ask(second), "fast");
  EXPECT_EQ(library.timed, 1);
  EXPECT_EQ(first.used(), (AlgorithmRecord{{kClass, {{kKey, "fast"}}}}));
  EXPECT_EQ(second.used(), first.used());
  EXPECT_NE(all(first.take_messages()).find("1 differ from the libraries' first proposal"),
            std::string::npos);
  EXPECT_TRUE(first.take_messages().empty());
  EXPECT_TRUE(second.take_messages().empty());
  // Each class of devices has its own choices.
  EXPECT_TRUE(second.choose("Another GPU", kKey, library.problem()));
  EXPECT_EQ(library.taken, "another day");
}

TEST(Algorithms, OfACheckpointArePreferred) {
  const Folder folder;
  Library library;
  Algorithms first({folder.path()});
  library.ask(first);
  Algorithms resumed({folder.path()});
  resumed.prefer({{kClass, {{kKey, "as it was"}}}, {"Another GPU", {{"other", "x"}}}});
  EXPECT_EQ(library.ask(resumed), "as it was");
  EXPECT_EQ(resumed.used(), (AlgorithmRecord{{kClass, {{kKey, "as it was"}}}}));
  // The checkpoint's choice does not replace the host's own.
  Algorithms next({folder.path()});
  EXPECT_EQ(library.ask(next), "fast");
  EXPECT_EQ(library.timed, 1);
}

// A short job makes the same choice twice, however long each timing takes; a longer job times the
// problems that the short one skipped.
TEST(Algorithms, ALongerJobTimesWhatAShortJobSkipped) {
  const Folder folder;
  Library library;
  const auto ask = [&](int64_t steps, double free_s) {
    Algorithms algorithms({.folder = folder.path(), .free_s = free_s});
    algorithms.expect_steps(steps);
    const std::string taken = library.ask(algorithms);
    EXPECT_EQ(algorithms.used(), (AlgorithmRecord{{kClass, {{kKey, taken}}}}));
    const std::string said = all(algorithms.take_messages());
    EXPECT_EQ(said.find("1 problems are not timed") != std::string::npos, free_s == 0) << said;
    return taken;
  };
  EXPECT_EQ(ask(100, 0), "first");
  EXPECT_NE(folder.text().find("\"left_by_steps\": 100"), std::string::npos) << folder.text();
  Algorithms same({folder.path()});
  same.expect_steps(100);
  EXPECT_EQ(library.ask(same), "first");
  Algorithms plan({folder.path(), /*times=*/false});
  EXPECT_EQ(library.ask(plan), "first");
  EXPECT_EQ(library.timed, 0);
  EXPECT_EQ(ask(101, 0), "first");  // no time is left for timing
  EXPECT_EQ(ask(102, 1), "fast");
  EXPECT_EQ(library.timed, 1);
  Algorithms known({folder.path()});
  known.expect_steps(1);
  EXPECT_EQ(library.ask(known), "fast");
}

// Later problems may be timed because of the time that the timed choices save: 4 us in each of 10^9
// steps are over an hour.
TEST(Algorithms, ALongJobTimesMoreCandidates) {
  const Folder folder;
  Library library;
  library.takes = std::chrono::milliseconds(2);
  Algorithms algorithms({.folder = folder.path(), .free_s = 0.001, .progress_s = 0});
  std::vector<std::string> said;
  algorithms.report_to([&](const std::string& text) { said.push_back(text); });
  algorithms.expect_steps(1'000'000'000);
  EXPECT_EQ(library.ask(algorithms, "a"), "fast");
  EXPECT_EQ(library.ask(algorithms, "b"), "fast");
  algorithms.expect_steps(1);
  EXPECT_EQ(library.ask(algorithms, "c"), "first");
  ASSERT_EQ(said.size(), 3u);
  EXPECT_TRUE(said[1].starts_with("timing algorithms: 2 problems so far")) << said[1];
}

TEST(Algorithms, AreNotTimedWithoutAFileToRecordThem) {
  Library library;
  Algorithms nowhere({fs::path()});
  EXPECT_EQ(library.ask(nowhere), "first");
  EXPECT_EQ(nowhere.used(), (AlgorithmRecord{{kClass, {{kKey, "first"}}}}));
  EXPECT_TRUE(nowhere.take_messages().empty());  // recording was switched off, so no message

  const Folder folder;
  Algorithms asked({folder.path(), /*times=*/false});
  EXPECT_EQ(library.ask(asked), "first");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  Algorithms timing({folder.path()});
  EXPECT_EQ(library.ask(timing), "fast");
  Algorithms known({folder.path(), /*times=*/false});
  EXPECT_EQ(library.ask(known), "fast");  // a plan forecasts the choice of the job

  // A folder that cannot be created is reported once.
  std::ofstream(folder.path() / "file") << "x";
  Algorithms impossible({folder.path() / "file/algorithms"});
  EXPECT_EQ(library.ask(impossible), "first");
  EXPECT_EQ(library.ask(impossible, "matmul another"), "first");
  const auto messages = impossible.take_messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("cannot be recorded"), std::string::npos) << messages[0];
  EXPECT_EQ(library.timed, 1);
}

/// A disk whose file writes fail.
class FullDisk final : public Files {
 public:
  Status write_file(const fs::path&, std::span<const std::span<const std::byte>>) override {
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL", "no space left");
  }
  Result<std::unique_ptr<FileFiller>> create_file(const fs::path& p, int64_t bytes) override {
    return local_files().create_file(p, bytes);
  }
  Status rename_durable(const fs::path& a, const fs::path& b) override {
    return local_files().rename_durable(a, b);
  }
  Status sync_directory(const fs::path& p) override { return local_files().sync_directory(p); }
  Status create_directories(const fs::path& p) override {
    return local_files().create_directories(p);
  }
  Status link_file(const fs::path& from, const fs::path& to) override {
    return local_files().link_file(from, to);
  }
  Status remove_all(const fs::path& p) override { return local_files().remove_all(p); }
};

TEST(Algorithms, ATimedChoiceThatCannotBeWrittenIsNotUsed) {
  const Folder folder;
  FullDisk disk;
  Library library;
  Algorithms algorithms({folder.path()}, disk);
  EXPECT_EQ(library.ask(algorithms), "first");
  EXPECT_EQ(library.ask(algorithms, "matmul another"), "first");
  EXPECT_EQ(library.timed, 1);  // the second problem was not timed
  EXPECT_NE(all(algorithms.take_messages()).find("no space left"), std::string::npos);
}

TEST(Algorithms, ARefusedChoiceIsTimedAgain) {
  const Folder folder;
  Library library;
  Algorithms first({folder.path()});
  library.ask(first);
  library.refused = {"fast"};
  library.fastest = "new";
  Algorithms second({folder.path()});
  EXPECT_EQ(library.ask(second), "new");
  EXPECT_NE(all(second.take_messages()).find("1 recorded choices of algorithms were rejected"),
            std::string::npos);
  Algorithms third({folder.path()});
  EXPECT_EQ(library.ask(third), "new");
  EXPECT_EQ(library.timed, 2);
  // The checkpoint's choice is refused too, so the host's is next.
  Algorithms resumed({folder.path()});
  resumed.prefer({{kClass, {{kKey, "fast"}}}});
  EXPECT_EQ(library.ask(resumed), "new");
  EXPECT_EQ(library.timed, 2);
}

TEST(Algorithms, AnUnreadableFileIsMovedAside) {
  const std::string entry = R"({"candidates": 1, "choice": "fast", "first_us": 0, "taken_us": 0})";
  const auto file_with = [&](const std::string& key, const std::string& value) {
    return R"({"format": 1, "device_class": ")" + kClass + R"(", "choices": {")" + key + R"(": )" +
           value + "}}";
  };
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(), file_with("", entry),
        file_with("a\\nb", entry), file_with(kKey, "\"fast\""),
        file_with(kKey, R"({"choice": "fast"})"),
        file_with(kKey, R"({"candidates": 1, "choice": "", "first_us": 0, "taken_us": 0})"),
        file_with(kKey,
                  R"({"candidates": 1, "choice": "x", "first_us": 0, "taken_us": 0, "more": 1})"),
        file_with(kKey, R"({"candidates": 1, "choice": ")" + std::string(2000, 'x') +
                            R"(", "first_us": 0, "taken_us": 0})"),
        R"({"format": 2, "device_class": ")" + kClass + R"(", "choices": {}})",
        std::string(R"({"format": 1, "device_class": "Another GPU", "choices": {}})")}) {
    SCOPED_TRACE(text.substr(0, 120));
    const Folder folder;
    Library library;
    Algorithms first({folder.path()});
    library.ask(first);
    const fs::path file = folder.file();
    std::ofstream(file) << text;
    Algorithms second({folder.path()});
    EXPECT_EQ(library.ask(second), "fast");
    EXPECT_EQ(library.timed, 2);
    EXPECT_NE(all(second.take_messages()).find(".damaged"), std::string::npos);
    std::ostringstream kept;
    kept << std::ifstream(file.string() + ".damaged").rdbuf();
    EXPECT_EQ(kept.str(), text);
    Algorithms third({folder.path()});
    EXPECT_EQ(library.ask(third), "fast");
    EXPECT_EQ(library.timed, 2);
  }
  // A valid version of the files above is accepted, so they were refused because of their damage.
  const Folder folder;
  Library library;
  Algorithms first({folder.path()});
  library.ask(first);
  std::ofstream(folder.file()) << file_with(kKey, entry);
  Algorithms second({folder.path()});
  library.fastest = "another";
  EXPECT_EQ(library.ask(second), "fast");
}

// Without the common file each process and each thread would choose a different algorithm.
TEST(Algorithms, AreTimedOnceForConcurrentRequests) {
  const Folder folder;
  constexpr int kProcesses = 4, kThreads = 3, kKeys = 5;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      Algorithms algorithms({folder.path()});
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          Library library;
          library.takes = std::chrono::milliseconds(5);
          library.fastest = "of " + std::to_string(p) + " " + std::to_string(t);
          for (int k = 0; k < kKeys; ++k) library.ask(algorithms, "key " + std::to_string(k));
        });
      }
      for (std::thread& t : threads) t.join();
      std::ofstream(folder.path() / ("used-" + std::to_string(p)))
          << to_json(algorithms.used()).dump();
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  std::set<std::string> used;
  for (int p = 0; p < kProcesses; ++p) {
    std::ostringstream text;
    text << std::ifstream(folder.path() / ("used-" + std::to_string(p))).rdbuf();
    used.insert(text.str());
  }
  ASSERT_EQ(used.size(), 1u);
  Library library;
  Algorithms later({folder.path()});
  for (int k = 0; k < kKeys; ++k) library.ask(later, "key " + std::to_string(k));
  EXPECT_EQ(to_json(later.used()).dump(), *used.begin());
  EXPECT_EQ(library.timed, 0);
}

TEST(AlgorithmRecord, IsReadBackAndChecked) {
  const AlgorithmRecord record = {{"A GPU", {{"a", "1"}, {"b", "2"}}}, {"B GPU", {{"a", "3"}}}};
  EXPECT_EQ(parse_algorithm_record(to_json(record)).value(), record);
  EXPECT_EQ(parse_algorithm_record(to_json({})).value(), AlgorithmRecord());
  for (const char* text :
       {"[]", "1", R"({"A": []})", R"({"A": {"k": 1}})", R"({"A": {"k": ""}})",
        R"({"A": {"": "c"}})", R"({"": {"k": "c"}})", R"({"A": {"k\n": "c"}})"}) {
    const auto refused = parse_algorithm_record(nlohmann::json::parse(text));
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().reason, "ALGORITHMS_INVALID");
  }
}

TEST(LocalAlgorithmsFolder, FollowsTheEnvironment) {
  ::setenv("TRAINYARD_ALGORITHMS", "/srv/algorithms", 1);
  EXPECT_EQ(local_algorithms_folder().value(), "/srv/algorithms");
  ::setenv("TRAINYARD_ALGORITHMS", "off", 1);
  EXPECT_EQ(local_algorithms_folder().value(), "");
  ::setenv("TRAINYARD_ALGORITHMS", "here", 1);
  EXPECT_NE(local_algorithms_folder().error().message.find("'here', expected the absolute path"),
            std::string::npos);
  ::unsetenv("TRAINYARD_ALGORITHMS");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(local_algorithms_folder().value(), "/cache/trainyard/algorithms");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(local_algorithms_folder().value(), "/home/me/.cache/trainyard/algorithms");
}

}  // namespace
}  // namespace trainyard
