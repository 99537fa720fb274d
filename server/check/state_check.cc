#include "server/check/state_check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "server/check/unused_files.h"
#include "server/config/paths.h"
#include "server/store/migrations.h"
#include "server/store/schema_copy.h"
#include "server/store/state_files.h"
#include "server/store/state_lock.h"
#include "server/store/store_files.h"
#include "src/base/disk_space.h"
#include "src/base/files.h"
#include "src/base/join.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/data/dataset.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

constexpr int kStoreFindingsMax = 20;
constexpr int64_t kModelJsonBytesMax = int64_t{64} << 20;
constexpr const char* kFromBackup = "restore it from a backup";

using Print = std::function<void(const std::string&)>;

/// Returns the first two columns of a line: "model damaged ".
std::string columns(const std::string& kind, const std::string& state) {
  return kind + std::string(kind.size() < 9 ? 9 - kind.size() : 1, ' ') + state + "  ";
}

/// Returns the first fault that integrity_check finds; empty if there is none.
std::string failed_integrity(Connection& db) {
  try {
    const std::string answer = db.query_text("PRAGMA integrity_check(1)");
    return answer == "ok" ? "" : answer;
  } catch (const SqliteError& e) {
    return e.what();
  }
}

class Checker {
 public:
  Checker(const fs::path& state_dir, const Print& line, const Print& progress)
      : paths_(state_dir), line_(line), progress_(progress) {}

  void store(Connection& db);
  void copy_before_upgrade(const SchemaCopy& copy);
  void files(const StateFiles& named);
  const StateCheck& result() const { return result_; }
  void damaged(const std::string& kind, const std::string& what) {
    ++result_.damaged;
    ++kind_damaged_;
    line_(columns(kind, "damaged") + what);
  }

 private:
  void begin(const std::string& kind, int64_t count) {
    kind_damaged_ = 0;
    kind_bytes_ = 0;
    progress_("checking " + std::to_string(count) + " " + kind + " ...");
  }
  void end(const std::string& kind, int64_t count) {
    const std::string read = std::to_string(count) + ", " + human_bytes(kind_bytes_) + " read";
    if (kind_damaged_ == 0) return line_(columns(kind, "ok") + read);
    line_(columns(kind, "damaged") + std::to_string(kind_damaged_) + " problems in " + read);
  }
  /// Returns the fault of a file whose digest is known; empty if it is intact.
  std::string wrong_content(const fs::path& path, const std::string& sha256);
  std::string name_in_folder(const fs::path& path) const {
    return path.lexically_relative(paths_.root()).generic_string();
  }

  void uploads(const StateFiles& named);
  void datasets(const StateFiles& named);
  void models(const StateFiles& named);
  void model(const StateFiles::Model& m);
  void jobs(const StateFiles& named);
  void job(const StateFiles::Job& j);
  void unused(const StateFiles& named);

  const StatePaths paths_;
  const Print& line_;
  const Print& progress_;
  StateCheck result_;
  int64_t kind_damaged_ = 0;
  int64_t kind_bytes_ = 0;
};

void Checker::store(Connection& db) {
  begin("pages of the store", std::stoll(db.query_text("PRAGMA page_count")));
  int64_t found = 0;
  const auto note = [&](const std::string& what) {
    if (++found > kStoreFindingsMax) return;
    damaged("store", what);
  };
  try {
    Query integrity(db, "PRAGMA integrity_check(20)");
    while (integrity.step()) {
      if (integrity.text(0) != "ok") note("integrity_check: " + integrity.text(0));
    }
    Query keys(db, "PRAGMA foreign_key_check");
    while (keys.step()) {
      note("foreign_key_check: a row of " + keys.text(0) + " refers to a missing row of " +
           keys.text(2));
    }
  } catch (const SqliteError& e) {
    note(e.what());
  }
  if (found == 0) return line_(columns("store", "ok") + store_path(paths_.root()).string());
  line_(
      columns("store", "damaged") +
      "restore trainyard.db and its -wal file, or the whole folder ('trainyard server restore'), " +
      "from a backup");
}

void Checker::copy_before_upgrade(const SchemaCopy& copy) {
  progress_("checking " + name_in_folder(copy.path) + " ...");
  const Result<std::unique_ptr<Connection>> db = open_schema_copy(copy);
  if (!db.ok()) return damaged("copy", paths_.hide(db.error().message));
  if (const std::string wrong = failed_integrity(**db); !wrong.empty())
    return damaged("copy", paths_.hide(damaged_schema_copy(copy, wrong).message));
  const bool undone = copy.schema > newest_schema_version();
  line_(columns("copy", "ok") + name_in_folder(copy.path) + ", " +
        human_bytes(bytes_below(copy.path)) +
        (undone ? ": the upgraded store, from before 'trainyardd --undo-upgrade'"
                : ": the store from before an upgrade, for 'trainyardd --undo-upgrade'") +
        "; remove it when you no longer need it");
}

std::string Checker::wrong_content(const fs::path& path, const std::string& sha256) {
  std::error_code ec;
  if (!fs::exists(path, ec)) return name_in_folder(path) + " is missing";
  kind_bytes_ += bytes_below(path);
  const Result<std::string> digest = sha256_file(path);
  if (!digest.ok()) return paths_.hide(digest.error().message);
  return *digest == sha256 ? "" : name_in_folder(path) + " does not match its SHA-256";
}

void Checker::files(const StateFiles& named) {
  uploads(named);
  datasets(named);
  models(named);
  jobs(named);
  unused(named);
}

void Checker::uploads(const StateFiles& named) {
  std::map<std::string, std::vector<std::string>> needed_by;
  for (const StateFiles::Dataset& d : named.datasets) {
    for (const std::string& sha256 : d.sources) {
      if (!d.ready) needed_by[sha256].push_back("dataset " + d.name);
    }
  }
  for (const StateFiles::Model& m : named.models) {
    if (m.job_uid.empty()) needed_by[m.digest].push_back("model " + m.name);
  }
  const auto count = std::ranges::count_if(named.uploads, &StateFiles::Upload::complete);
  begin("uploads", count);
  for (const StateFiles::Upload& u : named.uploads) {
    if (!u.complete) continue;
    const std::string wrong = wrong_content(paths_.upload(u.sha256), u.sha256);
    if (wrong.empty()) continue;
    const auto users = needed_by.find(u.sha256);
    damaged("upload", users == needed_by.end()
                          ? wrong +
                                ": nothing needs it any more; remove it, and a client that needs "
                                "it sends it again"
                          : joined(users->second, " and ") + ": " + wrong + "; " + kFromBackup +
                                ", or remove it and upload it again");
  }
  end("uploads", count);
}

void Checker::datasets(const StateFiles& named) {
  // Several datasets may have the same content.
  std::map<std::string, std::vector<std::string>> names;
  for (const StateFiles::Dataset& d : named.datasets) {
    if (d.ready) names[d.digest].push_back(d.name);
  }
  begin("datasets", std::ssize(names));
  for (const auto& [digest, of] : names) {
    const fs::path folder = paths_.dataset(digest);
    kind_bytes_ += bytes_below(folder);
    const Result<trainyard::Dataset> opened = trainyard::Dataset::open(folder, true);
    if (opened.ok()) continue;
    damaged("dataset", joined(of, " and ") + ": " + name_in_folder(folder) + ": " +
                           paths_.hide(opened.error().message) + "; " + kFromBackup +
                           ", or delete the dataset and upload it again");
  }
  end("datasets", std::ssize(names));
}

void Checker::models(const StateFiles& named) {
  const auto count =
      std::ranges::count_if(named.models, [](const auto& m) { return !m.job_uid.empty(); });
  begin("models", count);
  for (const StateFiles::Model& m : named.models) {
    if (!m.job_uid.empty()) model(m);  // otherwise its weights are an upload
  }
  end("models", count);
}

void Checker::model(const StateFiles::Model& m) {
  const auto note = [&](const std::string& wrong) {
    damaged("model", m.name + ": " + wrong + "; " + kFromBackup +
                         ", or delete the model and train it again");
  };
  if (const std::string wrong = wrong_content(paths_.weights(m.job_uid, m.digest), m.digest);
      !wrong.empty()) {
    note(wrong);
  }
  const fs::path path = paths_.model(m.job_uid) / "model.json";
  const Result<std::string> text = read_file(path, kModelJsonBytesMax);
  if (!text.ok()) return note(paths_.hide(text.error().message));
  kind_bytes_ += std::ssize(*text);
  if (!nlohmann::json::accept(*text)) note(name_in_folder(path) + " is not JSON");
}

void Checker::jobs(const StateFiles& named) {
  begin("jobs and their checkpoints", std::ssize(named.jobs));
  for (const StateFiles::Job& j : named.jobs) job(j);
  end("jobs", std::ssize(named.jobs));
}

void Checker::job(const StateFiles::Job& j) {
  std::optional<int64_t> newest;  // the newest intact checkpoint
  std::vector<std::pair<CheckpointFolder, std::string>> broken;
  for (const CheckpointFolder& c : list_checkpoints(paths_.checkpoints(j.uid))) {
    kind_bytes_ += bytes_below(c.path);
    const Status verified = verify_checkpoint(c);
    if (!verified.ok() && j.ended() && is_half_removed(c)) {
      line_(columns("files", "unused") + name_in_folder(c.path) +
            ": a checkpoint whose removal was interrupted; the next start finishes it");
    } else if (!verified.ok()) {
      broken.emplace_back(c, paths_.hide(verified.error().message));
    } else if (!newest) {
      newest = c.step;
    }
  }
  const std::string next = j.ended() ? "the job has ended and does not need it; remove the folder"
                           : newest  ? "the job resumes from step " + std::to_string(*newest)
                                     : "the job starts over, unless it is restored from a backup";
  for (const auto& [c, why] : broken) {
    damaged("job", j.name + ": checkpoint " + name_in_folder(c.path) + ": " + why + "; " + next);
  }
  if (!j.ended() && j.checkpoint_step > 0 && !newest && broken.empty()) {
    damaged("job", j.name + ": its checkpoint of step " + std::to_string(j.checkpoint_step) +
                       " is missing; " + next);
  }
}

void Checker::unused(const StateFiles& named) {
  std::set<fs::path> used = used_files(paths_, named);
  const bool all_known = add_files_of_copy(paths_, used);
  std::vector<fs::path> found;
  for (const fs::path& path : list_kept_files(paths_)) {
    if (all_known && !used.contains(path)) found.push_back(path);
  }
  std::error_code ec;
  if (fs::exists(paths_.backup(), ec)) found.push_back(paths_.backup());
  for (const fs::path& path : found) {
    const int64_t bytes = bytes_below(path);
    result_.unused_bytes += bytes;
    line_(columns("files", "unused") + name_in_folder(path) + ", " + human_bytes(bytes) +
          ": nothing refers to it; remove it");
  }
  if (found.empty()) line_(columns("files", "ok") + "no unused files");
}

}  // namespace

Result<StateCheck> check_state(const fs::path& state_dir, const Print& line,
                               const Print& progress) {
  std::error_code ec;
  StateCheck nothing;
  const auto none = [&] {
    line(columns("store", "none") + state_dir.string() + ": the first start creates it");
    return nothing;
  };
  if (!fs::exists(state_dir, ec) && !ec) return none();
  ASSIGN_OR_RETURN(const StateLock lock, StateLock::lock_existing(state_dir));
  Checker checker(state_dir, line, progress);
  const Result<std::unique_ptr<Connection>> db = open_unchanged(state_dir);
  if (!db.ok()) {
    checker.damaged("store", db.error().message + " [" + db.error().reason + "]");
    return checker.result();
  }
  if (*db == nullptr) return none();
  try {
    checker.store(**db);
    const int version = std::stoi((*db)->query_text("PRAGMA user_version"));
    if (version == newest_schema_version()) {
      checker.files(list_state_files(**db));
    } else {
      line(columns("store", "older") + "schema " + std::to_string(version) +
           ": the next start upgrades it to schema " + std::to_string(newest_schema_version()) +
           " and keeps a copy; files can be checked after that");
    }
    if (const std::optional<SchemaCopy> copy = find_schema_copy(state_dir, version)) {
      checker.copy_before_upgrade(*copy);
    }
  } catch (const SqliteError& e) {
    checker.damaged("store", std::string("cannot be read: ") + e.what() + "; " + kFromBackup);
  }
  StateCheck result = checker.result();
  result.has_store = true;
  return result;
}

}  // namespace trainyard::server
