// Tests of sign-in and of PeopleService through the whole daemon. They fail if a call gets another
// person's rights, if a token works after it was revoked, or if a change leaves no entry.
#include <pwd.h>
#include <unistd.h>

#include <fstream>

#include "server/daemon/init_admin.h"
#include "src/base/token_text.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/people_service.grpc.pb.h"

namespace trainyard::server {
namespace {

class ServicePeople : public ServiceTest {
 protected:
  /// Lets tokens call too, by TCP.
  void serve_on_tcp() {
    stop();
    config_.listen = "127.0.0.1:0";
    start();
  }
  void start_again() {
    stop();
    start();
  }
  using Stub = std::unique_ptr<v1::PeopleService::Stub>;
  Stub on_socket() { return v1::PeopleService::NewStub(channel_); }
  Stub on_tcp() {
    return v1::PeopleService::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(daemon_->port()), grpc::InsecureChannelCredentials()));
  }
  static std::unique_ptr<grpc::ClientContext> with(const std::string& token,
                                                   const std::string& acting_for = "") {
    auto c = context();
    c->AddMetadata("authorization", "Bearer " + token);
    if (!acting_for.empty()) c->AddMetadata("trainyard-acting-for", acting_for);
    return c;
  }
  static std::string me() { return ::getpwuid(::getuid())->pw_name; }

  /// Returns "person service token", or the error's reason.
  std::string who(const Stub& stub, std::unique_ptr<grpc::ClientContext> c) {
    v1::WhoAmIResponse response;
    const grpc::Status s = stub->WhoAmI(c.get(), {}, &response);
    if (!s.ok()) return reason_of(s);
    return response.person() + " " + response.service() + " " + response.token();
  }
  v1::CreateTokenResponse make_token(const std::string& person, const std::string& name,
                                     const std::vector<std::string>& may_act_for = {}) {
    v1::CreateTokenRequest request;
    request.set_person(person);
    request.set_name(name);
    request.mutable_may_act_for()->Assign(may_act_for.begin(), may_act_for.end());
    v1::CreateTokenResponse response;
    const grpc::Status s = on_socket()->CreateToken(context().get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return response;
  }
  std::string set_person(const std::string& name, v1::ServerRole role, bool service = false) {
    v1::SetPersonRequest request;
    request.set_name(name);
    request.set_server_role(role);
    request.set_service(service);
    v1::Person person;
    return reason_or_ok(on_socket()->SetPerson(context().get(), request, &person));
  }
  std::string set_member(const std::string& project, const std::string& person,
                         v1::ProjectRole role) {
    v1::SetMemberRequest request;
    request.set_parent("projects/" + project);
    request.set_person(person);
    request.set_role(role);
    v1::Member member;
    return reason_or_ok(on_socket()->SetMember(context().get(), request, &member));
  }
  std::string create_project(const std::string& id) {
    v1::CreateProjectRequest request;
    request.set_project_id(id);
    v1::Project project;
    return reason_or_ok(on_socket()->CreateProject(context().get(), request, &project));
  }
  std::string revoke(const std::string& id) {
    v1::RevokeTokenRequest request;
    request.set_id(id);
    google::protobuf::Empty empty;
    return reason_or_ok(on_socket()->RevokeToken(context().get(), request, &empty));
  }
  static std::string reason_or_ok(const grpc::Status& s) { return s.ok() ? "OK" : reason_of(s); }
  /// Returns the newest entry of the audit about this action: "caller object result".
  std::string newest_entry(const std::string& action) {
    v1::ListAuditRequest request;
    request.set_action(action);
    v1::ListAuditResponse response;
    const grpc::Status s = system_->ListAudit(context().get(), request, &response);
    if (!s.ok() || response.entries_size() == 0) return s.error_message();
    const v1::AuditEntry& entry = response.entries(0);
    return entry.caller() + " | " + entry.object() + " | " + entry.result();
  }
};

TEST_F(ServicePeople, TheDaemonsUserIsAnAdminOnTheSocket) {
  v1::WhoAmIResponse response;
  ASSERT_TRUE(on_socket()->WhoAmI(context().get(), {}, &response).ok());
  EXPECT_EQ(response.person(), me());
  EXPECT_EQ(response.server_role(), v1::ADMIN);
  ASSERT_EQ(response.memberships_size(), 1);
  EXPECT_EQ(response.memberships(0).project(), "projects/default");
  EXPECT_EQ(response.memberships(0).role(), v1::MAINTAINER);
  EXPECT_EQ(response.token(), "");
  EXPECT_NE(response.server_version(), "");
}

TEST_F(ServicePeople, ATokenIsItsPersonOnTcpAndOnTheSocket) {
  serve_on_tcp();
  const v1::CreateTokenResponse made = make_token("", "laptop");
  EXPECT_TRUE(is_token_text(made.text()));
  EXPECT_EQ(made.token().person(), me());
  EXPECT_GT(made.token().expire_time().seconds(), made.token().create_time().seconds());
  EXPECT_EQ(who(on_tcp(), with(made.text())), me() + "  laptop");
  EXPECT_EQ(who(on_tcp(), context()), "CREDENTIALS_MISSING");
  EXPECT_EQ(who(on_tcp(), with("nonsense")), "CREDENTIALS_INVALID");
  ASSERT_EQ(set_person("ada", v1::USER), "OK");
  const v1::CreateTokenResponse hers = make_token("ada", "laptop");
  EXPECT_EQ(who(on_tcp(), with(hers.text())), "ada  laptop");
  EXPECT_EQ(who(on_socket(), with(hers.text())), "ada  laptop") << "a token that is sent counts";
  EXPECT_EQ(who(on_socket(), with("nonsense")), "CREDENTIALS_INVALID");
  auto c = context();
  c->AddMetadata("authorization", "Basic " + hers.text());
  EXPECT_EQ(who(on_tcp(), std::move(c)), "CREDENTIALS_INVALID");
  start_again();
  EXPECT_EQ(who(on_tcp(), with(hers.text())), "ada  laptop") << "after a restart too";
}

TEST_F(ServicePeople, ARevokedTokenIsRefusedBeforeTheCallThatRevokedItIsAnswered) {
  serve_on_tcp();
  const v1::CreateTokenResponse made = make_token("", "laptop");
  const Stub tcp = on_tcp();
  EXPECT_EQ(who(tcp, with(made.text())), me() + "  laptop");
  EXPECT_EQ(revoke(made.token().id()), "OK");
  EXPECT_EQ(who(tcp, with(made.text())), "CREDENTIALS_REVOKED") << "on an open connection";
  EXPECT_EQ(revoke(made.token().id()), "TOKEN_NOT_FOUND");
  EXPECT_EQ(newest_entry("CreateToken"), me() + " | " + made.token().id() + " | OK");
}

TEST_F(ServicePeople, ATokenIsRotatedWithAnOverlap) {
  serve_on_tcp();
  const v1::CreateTokenResponse made = make_token("", "laptop");
  v1::RotateTokenRequest request;
  request.set_id(made.token().id());
  request.set_overlap_seconds(3600);
  v1::CreateTokenResponse next;
  ASSERT_TRUE(on_socket()->RotateToken(context().get(), request, &next).ok());
  EXPECT_EQ(next.token().id(), made.token().id());
  EXPECT_EQ(who(on_tcp(), with(made.text())), me() + "  laptop");
  EXPECT_EQ(who(on_tcp(), with(next.text())), me() + "  laptop");
  request.set_overlap_seconds(0);
  v1::CreateTokenResponse third;
  ASSERT_TRUE(on_socket()->RotateToken(context().get(), request, &third).ok());
  for (const std::string& old_text : {made.text(), next.text()}) {
    EXPECT_EQ(who(on_tcp(), with(old_text)), "CREDENTIALS_REVOKED");
  }
  EXPECT_EQ(who(on_tcp(), with(third.text())), me() + "  laptop");
  request.set_overlap_seconds(604'801);
  EXPECT_EQ(reason_of(on_socket()->RotateToken(context().get(), request, &third)),
            "FIELD_OUT_OF_RANGE");
}

TEST_F(ServicePeople, AServiceActsForAPersonAndTheAuditNamesBoth) {
  serve_on_tcp();
  ASSERT_EQ(set_person("ci", v1::USER, true), "OK");
  ASSERT_EQ(set_person("ada", v1::ADMIN), "OK");
  const v1::CreateTokenResponse made = make_token("ci", "bot", {"ada"});
  EXPECT_EQ(who(on_tcp(), with(made.text())), "ci  bot");
  EXPECT_EQ(who(on_tcp(), with(made.text(), "ada")), "ada ci bot");
  EXPECT_EQ(who(on_tcp(), with(made.text(), me())), "ACTING_FOR_DENIED");
  auto c = context();
  c->AddMetadata("trainyard-acting-for", "ada");
  EXPECT_EQ(who(on_socket(), std::move(c)), "ACTING_FOR_DENIED") << "a user acts for nobody";
  v1::CreateProjectRequest project;
  project.set_project_id("vision");
  v1::Project created;
  ASSERT_TRUE(on_tcp()->CreateProject(with(made.text(), "ada").get(), project, &created).ok());
  EXPECT_EQ(newest_entry("CreateProject"),
            "ada by ci (token " + made.token().id() + ") | vision | OK");
  v1::CreateTokenRequest grab;
  grab.set_name("mine-now");
  v1::CreateTokenResponse grabbed;
  EXPECT_EQ(reason_of(on_tcp()->CreateToken(with(made.text(), "ada").get(), grab, &grabbed)),
            "ACTING_FOR_DENIED")
      << "it would keep rights that it was only lent";
  grab.set_person("ada");
  grab.add_may_act_for("ci");
  EXPECT_EQ(reason_of(on_socket()->CreateToken(context().get(), grab, &grabbed)), "FIELD_CONFLICT");
}

TEST_F(ServicePeople, TokensOfOthersAreNotThere) {
  serve_on_tcp();
  ASSERT_EQ(set_person("ada", v1::USER), "OK");
  const std::string ada = make_token("ada", "laptop").text();
  const v1::CreateTokenResponse mine = make_token("", "laptop");
  v1::RevokeTokenRequest request;
  google::protobuf::Empty empty;
  request.set_id(mine.token().id());
  const grpc::Status foreign = on_tcp()->RevokeToken(with(ada).get(), request, &empty);
  EXPECT_EQ(reason_of(foreign), "TOKEN_NOT_FOUND");
  request.set_id("t-0000000000000000");
  const grpc::Status absent = on_tcp()->RevokeToken(with(ada).get(), request, &empty);
  EXPECT_EQ(absent.error_message().substr(0, 20), foreign.error_message().substr(0, 20));
  EXPECT_EQ(who(on_tcp(), with(mine.text())), me() + "  laptop");
  v1::ListTokensResponse tokens;
  ASSERT_TRUE(on_tcp()->ListTokens(with(ada).get(), {}, &tokens).ok());
  ASSERT_EQ(tokens.tokens_size(), 1);
  EXPECT_EQ(tokens.tokens(0).person(), "ada");
  v1::ListTokensRequest all;
  all.set_all(true);
  EXPECT_EQ(reason_of(on_tcp()->ListTokens(with(ada).get(), all, &tokens)), "ROLE_REQUIRED");
  ASSERT_TRUE(on_socket()->ListTokens(context().get(), all, &tokens).ok());
  EXPECT_EQ(tokens.tokens_size(), 2);
  v1::CreateTokenRequest forever;
  forever.set_name("forever");
  forever.set_never_expires(true);
  v1::CreateTokenResponse created;
  EXPECT_EQ(reason_of(on_tcp()->CreateToken(with(ada).get(), forever, &created)), "ROLE_REQUIRED");
  ASSERT_TRUE(on_socket()->CreateToken(context().get(), forever, &created).ok());
  EXPECT_FALSE(created.token().has_expire_time());
}

TEST_F(ServicePeople, TheLastAdminStaysUnlessTheDaemonsUserSaysSo) {
  serve_on_tcp();
  ASSERT_EQ(set_person("ada", v1::ADMIN), "OK");
  const std::string ada = make_token("ada", "laptop").text();
  v1::SetPersonRequest demote;
  demote.set_name("ada");
  demote.set_server_role(v1::USER);
  v1::Person person;
  EXPECT_EQ(reason_of(on_tcp()->SetPerson(with(ada).get(), demote, &person)), "LAST_ADMIN");
  v1::RemovePersonRequest remove;
  remove.set_name("ada");
  google::protobuf::Empty empty;
  EXPECT_EQ(reason_of(on_tcp()->RemovePerson(with(ada).get(), remove, &empty)), "LAST_ADMIN");
  EXPECT_EQ(set_person("ada", v1::USER), "OK") << "on the socket, where an admin is left";
}

TEST_F(ServicePeople, APersonsJobsGoToTheHeir) {
  serve_on_tcp();
  make_dataset();
  ASSERT_EQ(set_member("default", "ada", v1::MEMBER), "OK");
  ASSERT_EQ(set_person("bob", v1::USER), "OK");
  const v1::CreateTokenResponse token = make_token("ada", "laptop");
  const auto jobs = v1::JobService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(daemon_->port()), grpc::InsecureChannelCredentials()));
  v1::Job job;
  const grpc::Status submitted =
      jobs->SubmitJob(with(token.text()).get(), job_request("hers", "wait_for_stop"), &job);
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  wait_for("hers", v1::RUNNING);
  v1::RemovePersonRequest remove;
  remove.set_name("ada");
  google::protobuf::Empty empty;
  EXPECT_EQ(reason_of(on_socket()->RemovePerson(context().get(), remove, &empty)),
            "PERSON_OWNS_RESOURCES");
  remove.set_give_to("bob");
  const grpc::Status removed = on_socket()->RemovePerson(context().get(), remove, &empty);
  ASSERT_TRUE(removed.ok()) << removed.error_message();
  EXPECT_EQ(get("hers").owner(), "bob");
  EXPECT_EQ(get("hers").state(), v1::RUNNING);
  EXPECT_EQ(who(on_tcp(), with(token.text())), "CREDENTIALS_REVOKED");
  EXPECT_EQ(newest_entry("RemovePerson"), me() + " | ada bob | OK");
  ASSERT_TRUE(cancel("hers", &job).ok());
}

TEST_F(ServicePeople, ProjectsAndTheirMembers) {
  EXPECT_EQ(create_project("Vision"), "NAME_MALFORMED");
  ASSERT_EQ(create_project("vision"), "OK");
  EXPECT_EQ(create_project("vision"), "PROJECT_EXISTS");
  EXPECT_EQ(set_member("vision", "ada", v1::PROJECT_ROLE_UNSPECIFIED), "FIELD_REQUIRED");
  EXPECT_EQ(set_member("vision", "ada", static_cast<v1::ProjectRole>(9)), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(set_member("vision", "-ada", v1::MEMBER), "NAME_MALFORMED");
  EXPECT_EQ(set_member("nowhere", "ada", v1::MEMBER), "PROJECT_NOT_FOUND");
  ASSERT_EQ(set_member("vision", "ada", v1::MAINTAINER), "OK");
  EXPECT_EQ(newest_entry("SetMember"), me() + " | projects/vision ada maintainer | OK");
  v1::ListMembersRequest of_vision;
  of_vision.set_parent("projects/vision");
  v1::ListMembersResponse members;
  ASSERT_TRUE(on_socket()->ListMembers(context().get(), of_vision, &members).ok());
  ASSERT_EQ(members.members_size(), 1);
  EXPECT_EQ(members.members(0).role(), v1::MAINTAINER);
  v1::ListProjectsResponse projects;
  ASSERT_TRUE(on_socket()->ListProjects(context().get(), {}, &projects).ok());
  ASSERT_EQ(projects.projects_size(), 2);
  EXPECT_EQ(projects.projects(1).name(), "projects/vision");
  EXPECT_EQ(projects.projects(1).members(), 1);
  v1::SetProjectDevicesRequest devices;
  devices.set_name("projects/vision");
  devices.add_devices("devices/cpu");
  v1::Project project;
  ASSERT_TRUE(on_socket()->SetProjectDevices(context().get(), devices, &project).ok());
  EXPECT_EQ(project.devices(0), "devices/cpu");
  v1::ListPeopleResponse people;
  ASSERT_TRUE(on_socket()->ListPeople(context().get(), {}, &people).ok());
  ASSERT_GE(people.people_size(), 1);
  EXPECT_EQ(people.people(0).name(), "ada");
  EXPECT_EQ(people.people(0).memberships(0).project(), "projects/vision");
  v1::DeleteProjectRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default");
  EXPECT_EQ(reason_of(on_socket()->DeleteProject(context().get(), remove, &empty)),
            "PROJECT_NEEDED");
  remove.set_name("projects/vision");
  EXPECT_TRUE(on_socket()->DeleteProject(context().get(), remove, &empty).ok());
}

TEST_F(ServicePeople, ADatasetIsShared) {
  make_dataset();
  ASSERT_EQ(create_project("vision"), "OK");
  v1::ShareRequest request;
  v1::ShareEntry entry;
  const auto share = [&](const std::string& name, const std::string& with_project) {
    request.set_name(name);
    request.set_with_project(with_project);
    return reason_or_ok(on_socket()->Share(context().get(), request, &entry));
  };
  EXPECT_EQ(share("iris", "projects/vision"), "NAME_MALFORMED");
  EXPECT_EQ(share("projects/default/jobs/iris", "projects/vision"), "NAME_MALFORMED");
  EXPECT_EQ(share("projects/default/datasets/iris@x", "projects/vision"), "NAME_MALFORMED");
  EXPECT_EQ(share("projects/default/datasets/none", "projects/vision"), "DATASET_NOT_FOUND");
  EXPECT_EQ(share("projects/default/models/none", "projects/vision"), "MODEL_NOT_FOUND");
  EXPECT_EQ(share("projects/default/datasets/iris", "projects/nowhere"), "PROJECT_NOT_FOUND");
  EXPECT_EQ(share("projects/default/datasets/iris", "projects/default"), "FIELD_OUT_OF_RANGE");
  ASSERT_EQ(share("projects/default/datasets/iris", "projects/vision"), "OK");
  EXPECT_EQ(entry.person(), me());
  EXPECT_EQ(newest_entry("Share"), me() + " | projects/default/datasets/iris projects/vision | OK");
  v1::ListSharesRequest list;
  v1::ListSharesResponse shares;
  list.set_parent("projects/vision");
  ASSERT_TRUE(on_socket()->ListShares(context().get(), list, &shares).ok());
  ASSERT_EQ(shares.received_size(), 1);
  EXPECT_EQ(shares.received(0).name(), "projects/default/datasets/iris");
  EXPECT_EQ(shares.given_size(), 0);
  google::protobuf::Empty empty;
  EXPECT_TRUE(on_socket()->Unshare(context().get(), request, &empty).ok());
  EXPECT_EQ(reason_of(on_socket()->Unshare(context().get(), request, &empty)), "SHARE_NOT_FOUND");
}

TEST_F(ServicePeople, TheFirstAdminIsMadeWhileTheDaemonIsStopped) {
  const Result<InitialAdmin> runs = init_admin(config_, "ada");
  ASSERT_FALSE(runs.ok());
  EXPECT_EQ(runs.error().reason, "DAEMON_RUNS");
  EXPECT_NE(runs.error().message.find(std::to_string(::getpid())), std::string::npos);
  stop();
  EXPECT_EQ(init_admin(config_, "a da").error().reason, "NAME_MALFORMED");
  const Result<InitialAdmin> first = init_admin(config_, "ada");
  ASSERT_TRUE(first.ok()) << first.error().message;
  const Result<InitialAdmin> again = init_admin(config_, "ada");
  ASSERT_TRUE(again.ok()) << again.error().message;
  serve_on_tcp();
  EXPECT_EQ(who(on_tcp(), with(first->token)), "CREDENTIALS_REVOKED") << "it has another text now";
  EXPECT_EQ(who(on_tcp(), with(again->token)), "ada  init-admin");
  v1::WhoAmIResponse response;
  ASSERT_TRUE(on_tcp()->WhoAmI(with(again->token).get(), {}, &response).ok());
  EXPECT_EQ(response.server_role(), v1::ADMIN);
  EXPECT_TRUE(response.has_expire_time());
}

TEST_F(ServicePeople, ATokenWithoutANameIsAnAdminsAndGivesAWarning) {
  std::ofstream(root_ / "token") << "0123456789abcdef-any\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  serve_on_tcp();
  EXPECT_EQ(who(on_tcp(), with("0123456789abcdef-any")), "token  token_file:1");
  v1::ServerInfo info;
  ASSERT_TRUE(system_->GetServerInfo(context().get(), {}, &info).ok());
  bool warned = false;
  for (const std::string& warning : info.warnings()) {
    warned |= warning.find("token_file has a token without a name") != std::string::npos;
  }
  EXPECT_TRUE(warned);
}

}  // namespace
}  // namespace trainyard::server
