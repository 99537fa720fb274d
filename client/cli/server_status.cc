// trainyard server status: shows the state of the server.
#include "client/cli/command.h"

namespace trainyard::cli {
namespace {

Result<int> run_status(Session& session) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ServerInfo info,
                   server->call(client::rpc::kGetServerInfo, v1::GetServerInfoRequest()));
  session.show(info,
               [&] {
                 const std::string state = info.draining() ? "stopping" : "running";
                 std::string out = render_fields(
                     {{"server", server->connection().server},
                      {"state", Cell(state, info.draining() ? Style::kNotice : Style::kGood)},
                      {"version", info.version()},
                      {"up since", local_time(info.start_time())},
                      {"jobs running", grouped(info.jobs_running())},
                      {"jobs queued", grouped(info.jobs_queued())},
                      {"sandbox", info.sandbox()}},
                     session.out().colour(), session.out().line_width());
                 for (const std::string& warning : info.warnings()) {
                   const std::string label = session.out().styled(Style::kNotice, "warning:") + " ";
                   out +=
                       wrapped_lines(label + safe_text(warning), session.out().line_width()) + "\n";
                 }
                 return out;
               },
               {info.version()});
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command server_status_command() {
  return {"server status",
          "Show the server: version, jobs, warnings",
          {"trainyard server status", "trainyard server status -o json"},
          "Needs a token if the server requires one. For probes, 'trainyard health' answers with "
          "its exit code.",
          [](OptionSet&) {},
          run_status};
}

}  // namespace trainyard::cli
