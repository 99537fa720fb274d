// trainyard server gc: frees what nothing needs any more, after it has shown what that is.
#include <charconv>
#include <memory>
#include <string_view>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/lib/names.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

struct GcOptions {
  bool dry_run = false;
  std::string older_than = "7d";
  bool unsuccessful_jobs = false;
  bool yes = false;
};

/// "7d", "12h", "30m", "45s"; 0 needs no unit. The server has the bounds.
Result<int64_t> parse_seconds(std::string_view text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  const int64_t seconds = unit == "d"                             ? 24 * 3600
                          : unit == "h"                           ? 3600
                          : unit == "m"                           ? 60
                          : unit == "s" || (unit == "" && !count) ? 1
                                                                  : 0;
  if (error != std::errc() || seconds == 0 || count < 0 || count > 1'000'000'000) {
    return usage_error("--older-than: " + quoted_value(text) +
                       " is no duration, expected for example 7d, 12h, 30m or 0");
  }
  return count * seconds;
}

std::string kind_text(v1::CollectGarbageResponse::Item::Kind kind) {
  using Item = v1::CollectGarbageResponse::Item;
  switch (kind) {
    case Item::CHECKPOINTS:
      return "checkpoints";
    case Item::UPLOAD:
      return "upload";
    case Item::FILES:
      return "files";
    default:
      return Item::Kind_Name(kind);
  }
}

std::string render(const v1::CollectGarbageResponse& response, bool dry_run, bool colour) {
  if (response.items().empty()) return "nothing to remove\n";
  Table table({{"WHAT"}, {"NAME"}, {"FREES", true}, {"WHY"}});
  for (const auto& item : response.items()) {
    std::string why = item.reason();
    if (item.shared_bytes() > 0) {
      why += "; another job keeps " + human_bytes(item.shared_bytes()) + " of it";
    }
    const bool job = item.kind() == v1::CollectGarbageResponse::Item::CHECKPOINTS;
    table.add({kind_text(item.kind()),
               job ? std::string(client::short_name(item.name())) : item.name(),
               human_bytes(item.freed_bytes()), why});
  }
  return table.render(colour) + human_bytes(response.freed_bytes()) +
         (dry_run ? " would be freed" : " freed") +
         (response.more() ? "; there is more: call again" : "") + "\n";
}

Status confirm_removal(Session& session, const v1::CollectGarbageResponse& planned) {
  session.err().write(render(planned, /*dry_run=*/true, session.err().colour()));
  return confirm(session, "Remove this permanently?", "nothing was removed");
}

Result<int> run_gc(Session& session, const GcOptions& options) {
  v1::CollectGarbageRequest request;
  ASSIGN_OR_RETURN(const int64_t seconds, parse_seconds(options.older_than));
  request.set_older_than_seconds(seconds);
  request.set_unsuccessful_jobs(options.unsuccessful_jobs);
  const bool asks = !options.dry_run && !options.yes;
  if (asks && !can_ask()) {
    return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
                      "removing is permanent: add --yes, or --dry-run to see what would go");
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  request.set_dry_run(options.dry_run || asks);
  ASSIGN_OR_RETURN(v1::CollectGarbageResponse response, server->collect_garbage(request));
  if (asks && !response.items().empty()) {
    if (Status sure = confirm_removal(session, response); !sure.ok()) {
      return std::move(sure).error();
    }
    request.set_dry_run(false);
    ASSIGN_OR_RETURN(response, server->collect_garbage(request));
  }
  for (const std::string& warning : response.warnings()) {
    session.err().line(session.err().styled(Style::kNotice, "warning:") + " " + safe_text(warning));
  }
  std::vector<std::string> names;
  for (const auto& item : response.items()) names.push_back(item.name());
  session.show(
      response, [&] { return render(response, request.dry_run(), session.out().colour()); }, names);
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command server_gc_command() {
  auto o = std::make_shared<GcOptions>();
  return {
      "server gc",
      "Free what nothing needs: old jobs' checkpoints, files without an owner",
      {"trainyard server gc --dry-run", "trainyard server gc --older-than 30d --yes",
       "trainyard server gc --older-than 90d --unsuccessful-jobs --dry-run"},
      "Checkpoints of jobs that SUCCEEDED go if their model exists; those of FAILED and "
      "CANCELLED jobs only with\n--unsuccessful-jobs, because retry and fork begin with them. "
      "What an unfinished job, a model, a dataset or a fork\nneeds stays. Jobs themselves stay, "
      "with their metrics.",
      [o](OptionSet& options) {
        options.flag("--dry-run", o->dry_run, "show what would go and remove nothing");
        options.text("--older-than", "DURATION", o->older_than,
                     "checkpoints of jobs that ended at least so long ago: 7d (the default), "
                     "12h, 0");
        options.flag("--unsuccessful-jobs", o->unsuccessful_jobs,
                     "checkpoints of FAILED and CANCELLED jobs too: a retry then starts over");
        options.flag("-y,--yes", o->yes, "do not ask for confirmation");
      },
      [o](Session& session) { return run_gc(session, *o); }};
}

}  // namespace trainyard::cli
