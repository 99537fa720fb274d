// Tests that a restore accepts a valid backup and nothing else.
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/lib/backup.h"
#include "client/lib/restore.h"
#include "src/base/handle.h"
#include "src/base/sha256.h"
#include "tests/client/fake_server.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

std::string slurp_file(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct Entry {
  std::string path;
  std::string content;
  unsigned type = AE_IFREG;
};

class Restore : public ::testing::Test {
 protected:
  Restore() {
    std::string made = (fs::temp_directory_path() / "restore-XXXXXX").string();
    root_ = ::mkdtemp(made.data());
    file_ = root_ / "backup.tar";
    state_ = root_ / "state";
  }
  ~Restore() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  static std::vector<Entry> good() {
    std::vector<Entry> entries = {{"uploads/" + sha256_hex("u"), "u"},
                                  {"jobs/uid1/checkpoints/step-000000100/state.json", "{}"},
                                  {"algorithms/empty.json", ""},
                                  {"trainyard.db", std::string(70'000, 'd')}};
    entries.push_back({kBackupManifestName, manifest_of(entries)});
    return entries;
  }
  static std::string manifest_of(const std::vector<Entry>& entries) {
    BackupManifest manifest;
    manifest.server_version = "1";
    manifest.created = "2026-11-23T00:00:00Z";
    for (const Entry& e : entries) {
      manifest.files.push_back({e.path, std::ssize(e.content), sha256_hex(e.content)});
    }
    return to_json(manifest);
  }
  void write(const std::vector<Entry>& entries) const {
    const Handle<archive, archive_write_free> out(archive_write_new());
    archive_write_set_format_pax_restricted(out.get());
    ASSERT_EQ(archive_write_open_filename(out.get(), file_.c_str()), ARCHIVE_OK);
    for (const Entry& e : entries) {
      const Handle<archive_entry, archive_entry_free> entry(archive_entry_new());
      archive_entry_set_pathname(entry.get(), e.path.c_str());
      archive_entry_set_filetype(entry.get(), e.type == 0 ? AE_IFREG : e.type);
      archive_entry_set_perm(entry.get(), 0600);
      if (e.type == AE_IFLNK) archive_entry_set_symlink(entry.get(), e.content.c_str());
      if (e.type == 0) archive_entry_set_hardlink(entry.get(), e.content.c_str());
      const bool regular = e.type == AE_IFREG;
      archive_entry_set_size(entry.get(), regular ? std::ssize(e.content) : 0);
      ASSERT_EQ(archive_write_header(out.get(), entry.get()), ARCHIVE_OK);
      if (regular) archive_write_data(out.get(), e.content.data(), e.content.size());
    }
  }
  Result<BackupManifest> restore() const { return restore_backup(file_, state_, {}, {}); }
  void expect_refused(const std::string& reason, const std::string& word) const {
    const Result<BackupManifest> done = restore();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().reason, reason) << done.error().message;
    EXPECT_NE(done.error().message.find(word), std::string::npos) << done.error().message;
    expect_nothing_left();
  }
  /// Checks that neither the folder nor a half-made one exists.
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(root_)) {
      EXPECT_EQ(entry.path(), file_) << "was left";
    }
  }
  void refuse_with(Entry bad, const std::string& word) {
    std::vector<Entry> entries = good();
    entries.insert(entries.begin(), std::move(bad));
    write(entries);
    expect_refused("BACKUP_DAMAGED", word);
  }

  fs::path root_, file_, state_;
};

TEST_F(Restore, MakesTheFolder) {
  write(good());
  const Result<BackupManifest> done = restore();
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->files.size(), 4u);
  EXPECT_EQ(slurp_file(state_ / "trainyard.db"), std::string(70'000, 'd'));
  EXPECT_EQ(slurp_file(state_ / "uploads" / sha256_hex("u")), "u");
  EXPECT_FALSE(fs::exists(state_ / kBackupManifestName));
  EXPECT_EQ(fs::status(state_).permissions(), fs::perms::owner_all);
}

TEST_F(Restore, AcceptsAnEmptyFolderAndCreatesParents) {
  write(good());
  fs::create_directories(state_);
  EXPECT_TRUE(restore().ok());
  state_ = root_ / "a/b/";
  EXPECT_TRUE(restore().ok());
  EXPECT_TRUE(fs::exists(root_ / "a/b/trainyard.db"));
}

TEST_F(Restore, FillsAFolderThatCannotBeReplaced) {
  write(good());
  fs::create_directories(root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", state_);
  ASSERT_TRUE(restore().ok());
  EXPECT_TRUE(fs::is_symlink(state_));
  EXPECT_TRUE(fs::exists(root_ / "elsewhere/trainyard.db"));
  EXPECT_FALSE(restore().ok());
  for (const auto& entry : fs::directory_iterator(root_ / "elsewhere")) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << "was left";
  }
}

TEST_F(Restore, RefusesAFolderThatIsNotEmpty) {
  write(good());
  fs::create_directories(state_);
  std::ofstream(state_ / "mine") << "x";
  const auto done = restore();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().reason, "STATE_DIR_NOT_EMPTY");
  EXPECT_EQ(slurp_file(state_ / "mine"), "x");
  EXPECT_FALSE(fs::exists(state_ / "trainyard.db"));
}

TEST_F(Restore, RefusesATruncatedArchive) {
  write(good());
  const std::string whole = slurp_file(file_);
  size_t end = whole.find_last_not_of('\0');
  for (size_t bytes = 0; bytes < end; bytes += bytes < 4096 || bytes + 4096 > end ? 97 : 8192) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << whole.substr(0, bytes);
    const auto done = restore();
    ASSERT_FALSE(done.ok()) << "cut at " << bytes;
    EXPECT_EQ(done.error().reason, "BACKUP_DAMAGED") << done.error().message;
  }
  expect_nothing_left();
}

TEST_F(Restore, RefusesAFlippedByteInAnyFile) {
  write(good());
  const std::string whole = slurp_file(file_);
  const size_t at = whole.find(std::string(1000, 'd'));
  for (const size_t offset : {size_t{0}, size_t{69'999}, size_t{35'000}}) {
    std::string flipped = whole;
    flipped[at + offset] = 'e';
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << flipped;
    expect_refused("BACKUP_DAMAGED", "trainyard.db");
  }
}

TEST_F(Restore, RefusesPathsThatLeaveTheFolder) {
  for (const char* path :
       {"../evil", "uploads/../../evil", "uploads/./x", "uploads//x", "uploads/.hidden", "evil",
        "lock", "logs/x", "trainyard.sock", "trainyard.db-wal", "uploads", "uploads/a b"}) {
    refuse_with({path, "x"}, "does not belong");
  }
  refuse_with({(root_ / "absolute").string(), "x"}, "does not belong");
}

TEST_F(Restore, RefusesEntriesThatAreNotRegularFiles) {
  refuse_with({"uploads/link", "/etc/passwd", AE_IFLNK}, "regular");
  refuse_with({"uploads/hard", "trainyard.db", 0}, "regular");
  refuse_with({"uploads/folder", "", AE_IFDIR}, "regular");
  refuse_with({"uploads/pipe", "", AE_IFIFO}, "regular");
  refuse_with({"uploads/device", "", AE_IFCHR}, "regular");
}

TEST_F(Restore, RefusesDuplicateUnlistedAndMissingFiles) {
  refuse_with({"trainyard.db", "other"}, "twice");
  refuse_with({"uploads/extra", "x"}, "does not name");
  std::vector<Entry> entries = good();
  entries.erase(entries.begin());
  write(entries);
  expect_refused("BACKUP_DAMAGED", "missing");
  entries = good();
  entries.push_back({"uploads/late", "x"});
  write(entries);
  expect_refused("BACKUP_DAMAGED", "follows");
  entries = {{"uploads/only", "x"}};
  entries.push_back({kBackupManifestName, manifest_of(entries)});
  write(entries);
  expect_refused("BACKUP_DAMAGED", "no store");
}

TEST_F(Restore, RefusesALaterFormatAndOtherFiles) {
  std::vector<Entry> entries = good();
  std::string& text = entries.back().content;
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 2");
  write(entries);
  expect_refused("BACKUP_NEWER", "2");
  std::ofstream(file_, std::ios::trunc) << std::string(2000, 'x');
  expect_refused("BACKUP_DAMAGED", "not a backup");
  fs::remove(file_);
  EXPECT_EQ(restore().error().reason, "FILE_NOT_FOUND");
}

TEST_F(Restore, AnInterruptLeavesNothing) {
  write(good());
  std::stop_source stop;
  const auto done = restore_backup(
      file_, state_, [&](int64_t) { stop.request_stop(); }, stop.get_token());
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kCancelled);
  expect_nothing_left();
}

/// A backup from the fake server, which misbehaves on request.
class BackupCall : public Restore {
 protected:
  Result<v1::BackupResponse::Summary> back_up() {
    auto client = Client::connect(server_.connection());
    EXPECT_TRUE(client.ok());
    return write_backup(**client, file_, {}, stop_.get_token());
  }
  FakeServer server_;
  std::stop_source stop_;
};

TEST_F(BackupCall, WritesAnArchiveThatCanBeRestored) {
  const auto done = back_up();
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->file_count(), 2);
  const auto restored = restore();
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(slurp_file(state_ / "trainyard.db"), "the store");
  EXPECT_EQ(fs::status(file_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(BackupCall, DamageInTransitLeavesNoFile) {
  server_.state().backup_fault = "digest";
  EXPECT_EQ(back_up().error().reason, "BACKUP_DAMAGED");
  expect_nothing_left();
}

TEST_F(BackupCall, AnEarlyEndKeepsTheEarlierFile) {
  std::ofstream(file_) << "the earlier one";
  server_.state().backup_fault = "early";
  EXPECT_EQ(back_up().error().reason, "STREAM_MALFORMED");
  EXPECT_EQ(slurp_file(file_), "the earlier one");
  expect_nothing_left();
}

TEST_F(BackupCall, PathsOfTheServerAreNotTrusted) {
  server_.state().backup_fault = "path";
  EXPECT_EQ(back_up().error().reason, "STREAM_MALFORMED");
  expect_nothing_left();
}

TEST_F(BackupCall, AnInterruptLeavesNoFile) {
  stop_.request_stop();
  EXPECT_EQ(back_up().error().code, ErrorCode::kCancelled);
  expect_nothing_left();
}

}  // namespace
}  // namespace trainyard::client
