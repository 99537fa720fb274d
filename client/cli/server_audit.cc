// trainyard server audit: lists who asked the server to change something, and what came of it.
#include <algorithm>
#include <ctime>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/list_limit.h"
#include "client/cli/relative_name.h"
#include "src/base/duration.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kPageMax = 1000;
constexpr int64_t kOnScreen = 50;

constexpr client::Rpc<v1::ListAuditRequest, v1::ListAuditResponse> kListAudit{
    "SystemService/ListAudit"};

struct AuditOptions {
  std::string caller;
  std::string action;
  std::string object;
  std::string newer_than;
  std::string older_than;
  ListLimit limit;
};

/// Sets `time` to `age` before now; nothing is set without an age.
Status set_time(const char* option, const std::string& age, google::protobuf::Timestamp* time) {
  if (age.empty()) return {};
  const std::optional<int64_t> seconds = parse_duration(age);
  if (!seconds) {
    return usage_error(std::string(option) + ": expected a time such as 12h or 7d");
  }
  time->set_seconds(std::max<int64_t>(std::time(nullptr) - *seconds, 1));
  return {};
}

std::string render(const v1::ListAuditResponse& audit, const Terminal& out) {
  Table table({{"TIME"},
               {.title = "CALLER", .is_name = true},
               {"ADDRESS"},
               {"ACTION"},
               {.title = "OBJECT", .shortens = true},
               {.title = "RESULT", .shortens = true}});
  for (const v1::AuditEntry& entry : audit.entries()) {
    table.add({local_time(entry.time()), entry.caller(), entry.address(), entry.action(),
               std::string(relative_name(entry.object())),
               entry.result().empty() ? "no result" : entry.result()});
  }
  return table.render(out);
}

Result<v1::ListAuditRequest> make_request(const AuditOptions& options) {
  v1::ListAuditRequest request;
  request.set_caller(options.caller);
  request.set_action(options.action);
  request.set_object(options.object);
  if (!options.newer_than.empty()) {
    if (Status s = set_time("--newer-than", options.newer_than, request.mutable_since_time());
        !s.ok()) {
      return std::move(s).error();
    }
  }
  if (!options.older_than.empty()) {
    if (Status s = set_time("--older-than", options.older_than, request.mutable_until_time());
        !s.ok()) {
      return std::move(s).error();
    }
  }
  return request;
}

Result<int> run_audit(Session& session, const AuditOptions& options) {
  ASSIGN_OR_RETURN(const int64_t limit, options.limit.count(session));
  ASSIGN_OR_RETURN(v1::ListAuditRequest request, make_request(options));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListAuditResponse all;
  do {
    request.set_page_size(static_cast<int32_t>(std::min(limit - all.entries_size(), kPageMax)));
    ASSIGN_OR_RETURN(v1::ListAuditResponse page, server->call(kListAudit, request));
    for (v1::AuditEntry& entry : *page.mutable_entries()) *all.add_entries() = std::move(entry);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && all.entries_size() < limit);
  std::vector<std::string> numbers;
  for (const v1::AuditEntry& entry : all.entries())
    numbers.push_back(std::to_string(entry.number()));
  const bool empty = numbers.empty();
  session.show(
      all, [&] { return empty ? std::string() : render(all, session.out()); }, numbers);
  if (empty) session.hint("No matching entries.");
  if (!request.page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command server_audit_command() {
  auto o = std::make_shared<AuditOptions>();
  return {"server audit",
          "Show who asked the server to change something or to hand out data, newest first",
          {"trainyard server audit", "trainyard server audit --caller alice --newer-than 7d",
           "trainyard server audit --action CancelJob --object projects/default/jobs/digits-1",
           "trainyard server audit -o json > audit.json"},
          "Calls that only read leave no entry. People are named by the user of the Unix socket or "
          "by the name of\ntheir token.",
          [o](OptionSet& options) {
            options.text("--caller", "NAME", o->caller, "only calls of this user or token");
            options.text("--action", "METHOD", o->action,
                         "only calls of this method, such as DeleteModel");
            options.text("--object", "NAME", o->object,
                         "only calls about this name, as -o json shows it");
            options.text("--newer-than", "TIME", o->newer_than, "only calls of the last 12h, 7d");
            options.text("--older-than", "TIME", o->older_than, "only calls before that");
            o->limit.add_option(options, "entries", kOnScreen);
          },
          [o](Session& session) { return run_audit(session, *o); }};
}

}  // namespace trainyard::cli
