// trainyard server backup|restore: saves all of a server's state in one file, and restores it.
#include <filesystem>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/transfer_line.h"
#include "client/lib/backup.h"
#include "client/lib/restore.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

std::string counted(int64_t files, int64_t bytes) {
  return grouped(files) + (files == 1 ? " file, " : " files, ") + human_bytes(bytes);
}

Result<int> run_backup(Session& session, const std::string& file) {
  const bool to_stdout = file == "-";
  if (to_stdout && session.out().is_terminal()) {
    return usage_error("FILE: a backup cannot be written to a terminal, expected a file's name");
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    return usage_error("FILE: " + file + " is a folder, expected the name of a file in it");
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const auto write = [&] {
    TransferLine line(session.err());
    return client::write_backup(
        *server, file,
        [&](const client::BackupProgress& p) {
          line.show(p.preparing ? "copying the store" : "receiving", p.done_bytes, p.total_bytes);
        },
        session.interrupted());
  };
  ASSIGN_OR_RETURN(const v1::BackupResponse::Summary summary, write());
  for (const std::string& warning : summary.warnings()) {
    session.err().line(session.err().styled(Style::kNotice, "warning:") + " " + safe_text(warning));
  }
  if (to_stdout) return static_cast<int>(client::kExitOk);
  session.show(summary, [&] { return file + "\n"; }, {file});
  session.hint("  " + counted(summary.file_count(), summary.size_bytes()) +
               ". 'trainyard server restore' creates a state folder from it.");
  return static_cast<int>(client::kExitOk);
}

struct RestoreOptions {
  std::string file;
  std::string state_dir;
};

Result<int> run_restore(Session& session, const RestoreOptions& o) {
  if (o.state_dir.empty()) {
    return usage_error("--state-dir is missing, expected an empty folder or a new one's name");
  }
  const auto restore = [&] {
    TransferLine line(session.err());
    return client::restore_backup(
        o.file, o.state_dir, [&](int64_t bytes) { line.write("restored " + human_bytes(bytes)); },
        session.interrupted());
  };
  ASSIGN_OR_RETURN(const client::BackupManifest manifest, restore());
  v1::BackupResponse::Summary summary;
  summary.set_format_version(manifest.format_version);
  summary.set_server_version(manifest.server_version);
  summary.set_commit(manifest.commit);
  for (const client::BackupFile& file : manifest.files) {
    summary.set_file_count(summary.file_count() + 1);
    summary.set_size_bytes(summary.size_bytes() + file.size_bytes);
  }
  session.show(summary, [&] { return o.state_dir + "\n"; }, {o.state_dir});
  session.hint("  " + counted(summary.file_count(), summary.size_bytes()) + ", as of " +
               safe_text(manifest.created) + " from a server of version " +
               safe_text(manifest.server_version) + ".\n  'trainyardd --state-dir " + o.state_dir +
               "' serves it; unfinished jobs continue from their checkpoints.");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command server_backup_command() {
  auto file = std::make_shared<std::string>();
  return {"server backup",
          "Write all of the server's state into one file, while it runs",
          {"trainyard server backup trainyard-2026-11-23.tar",
           "trainyard --server gpu-box:7443 server backup - | zstd > trainyard.tar.zst"},
          "The file is a tar archive: jobs with their events and checkpoints, models, datasets, "
          "uploads and the store, in\none consistent snapshot. Jobs continue meanwhile. The file "
          "gets its name when it is complete, and replaces an\nearlier one. It contains everything "
          "that clients may read: keep it as private as the server. - is standard output.",
          [file](OptionSet& options) {
            options.positional("FILE", *file, "the archive to write; - is standard output");
          },
          [file](Session& session) { return run_backup(session, *file); }};
}

Command server_restore_command() {
  auto o = std::make_shared<RestoreOptions>();
  return {"server restore",
          "Create a state folder from a backup; needs no server",
          {"trainyard server restore trainyard-2026-11-23.tar --state-dir /var/lib/trainyard",
           "zstd -dc trainyard.tar.zst | trainyard server restore - --state-dir restored"},
          "Every file is compared with its SHA-256. The folder appears complete or not at all. Run "
          "it as the user that the\ndaemon runs as, then start trainyardd with that folder: "
          "unfinished jobs continue from their checkpoints.",
          [o](OptionSet& options) {
            options.positional("FILE", o->file, "the backup; - is standard input");
            options.text("--state-dir", "DIR", o->state_dir,
                         "the folder to create; missing or empty");
          },
          [o](Session& session) { return run_restore(session, *o); }};
}

}  // namespace trainyard::cli
