// trainyard whoami: shows who the server takes the caller for, with which rights, and where the
// command found server, token and project.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/connection_view.h"
#include "client/cli/output_json.h"
#include "client/cli/people_view.h"

namespace trainyard::cli {
namespace {

Result<int> run_whoami(Session& session) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::WhoAmIResponse me,
                   server->call(client::rpc::kWhoAmI, v1::WhoAmIRequest()));
  const client::Connection& connection = server->connection();
  nlohmann::ordered_json json = json_of(me);
  json["client"] = connection_json(connection);
  show_json(session, json,
            [&] {
              const bool expires = !me.token().empty() && me.has_expire_time();
              std::vector<std::pair<std::string, Cell>> fields = {
                  {"person", me.person()},
                  {"by service", me.service()},
                  {"role", role_name(me.server_role())},
                  {"projects", memberships_text(me.memberships())},
                  {"token", me.token()},
                  {"expires", expires              ? local_time(me.expire_time())
                              : me.token().empty() ? ""
                                                   : "never"},
                  {"version", me.server_version()}};
              for (auto& field : connection_fields(connection)) fields.push_back(std::move(field));
              return render_fields(fields, session.out().colour(), session.out().line_width());
            },
            {me.person()});
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command whoami_command() {
  return {"whoami",
          "Show who you are to the server, your roles, and where your settings come from",
          {"trainyard whoami", "trainyard whoami -o json | jq -r .person"},
          "",
          [](OptionSet&) {},
          run_whoami};
}

}  // namespace trainyard::cli
