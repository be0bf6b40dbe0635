//! Visitors: their identity and their rights.
//!
//! Owns: the gate before each route that is not for everybody, the proofs by which a visitor is known, and the
//! refusal of requests that another site makes in a visitor's name. Never: makes a token, or knows a page.
//!
//! A program presents a token with each request of the API, and a browser its session's cookie with each page.
//! Neither counts in the other's place, so no page of another site can use a browser against the API.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{RawPathParams, Request, State};
use axum::http::header::{
    AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN,
    WWW_AUTHENTICATE,
};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::config::Anonymous;
use crate::model::{Channel, RunId, Scope, TokenKind};
use crate::percent::encoded;
use crate::secret::Secret;
use crate::store::action::Actor;
use crate::store::query;
use crate::store::token::{self, Token};

use super::Site;
use super::failed_sign_ins::{Remote, Strangers};
use super::live;
use super::pages::clip;
use super::peer::{Peer, Vouched, is_forwarded};
use super::quota::Who;
use super::refusal::{Form, Refusal};
use super::routes::{Reach, Route};
use super::turns;

/// The name of the cookie of a browser's session. A browser keeps one cookie for all ports of a host, so each port
/// has its own name: another console on that host signs nobody out.
pub fn cookie_name(headers: &HeaderMap) -> String {
    const NAME: &str = "ductwork_session";
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    let port = host.and_then(|it| it.rsplit_once(':')).map(|it| it.1);
    let is_port = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    match port.filter(is_port) {
        Some(port) => format!("{NAME}_{port}"),
        None => NAME.to_owned(),
    }
}

/// A token that was found is valid for this long without another lookup.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The number of tokens that are known at once.
const KNOWN_MAX: usize = 1_000;

/// The number of requests with one token within that time.
const REQUESTS: u32 = 50;

/// The number of sessions that browsers may open with one token within `SESSIONS_IN`.
const SESSIONS: usize = 60;

const SESSIONS_IN: Duration = Duration::from_secs(60 * 60);

/// The number of unknown secrets that are looked up at once: fewer than may wait for the database.
const TURNS: usize = 16;

/// The number of characters that a refusal spends on pipelines.
const LETTERS: usize = 500;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A visitor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Visitor {
    /// The name under which actions are recorded.
    pub name: String,
    /// The rights.
    pub scope: Scope,
    /// The only pipelines to which the rights apply; `None`: all.
    pub pipelines: Option<Vec<String>>,
    /// The visitor may see the inputs, outputs and logs of runs.
    pub payloads: bool,
    /// Known by a token, a session or a peer, and not merely by being here.
    pub has_signed_in: bool,
    /// The public part of the token or session by which the visitor is known.
    pub token: Option<String>,
    /// Part of each form that is made for this visitor: no page of another site can know it.
    pub proof: String,
}

impl Visitor {
    /// True when the visitor may see every pipeline.
    pub fn may_see_all(&self) -> bool {
        self.pipelines.is_none()
    }

    /// True when the visitor may act on every pipeline.
    pub fn may_act_on_all(&self) -> bool {
        self.scope >= Scope::Operate && self.may_see_all()
    }

    /// The visitor as an actor.
    pub fn actor(&self, channel: Channel) -> Actor {
        Actor::new(&self.name, channel)
    }

    /// True when the visitor may act on this pipeline.
    pub fn may_act_on(&self, pipeline: &str) -> bool {
        self.scope >= Scope::Operate && self.may_see(pipeline)
    }

    /// True when the visitor may know about this pipeline.
    pub fn may_see(&self, pipeline: &str) -> bool {
        let only = self.pipelines.as_ref();
        only.is_none_or(|only| only.iter().any(|it| it == pipeline))
    }
}

/// A visitor who makes a request, and the optional parts of this console.
#[derive(Clone)]
pub struct Asking {
    /// The visitor.
    pub visitor: Arc<Visitor>,
    /// Endpoints are configured.
    pub has_webhooks: bool,
}

impl Asking {
    fn new(site: &Site, visitor: Arc<Visitor>) -> Self {
        let has_webhooks = !site.terms.webhooks.is_empty();
        Self {
            visitor,
            has_webhooks,
        }
    }
}

tokio::task_local! {
    /// The visitor whose request this task answers.
    static ASKING: Asking;
}

/// The visitor whose request is being answered, with the parts of this console; none on a route for everybody.
pub fn asked_by() -> Option<Asking> {
    ASKING.try_with(Asking::clone).ok()
}

/// The visitor whose request is being answered; none on a route for everybody.
pub fn asking() -> Option<Arc<Visitor>> {
    ASKING.try_with(|asking| Arc::clone(&asking.visitor)).ok()
}

/// True when the visitor whose request is being answered may know about this pipeline.
pub fn may_see(pipeline: &str) -> bool {
    asking().is_some_and(|visitor| visitor.may_see(pipeline))
}

/// Refuses a visitor who may not know about this pipeline.
pub fn need(pipeline: &str) -> Result<(), Refusal> {
    match asking() {
        Some(visitor) if visitor.may_see(pipeline) => Ok(()),
        asking => {
            let only = asking.and_then(|it| it.pipelines.clone());
            Err(alone(&only.unwrap_or_default()))
        }
    }
}

/// The refusal of a request beyond the pipelines that a token is for.
pub fn alone(only: &[String]) -> Refusal {
    let detail = format!("this token is for {} alone", names(only));
    Refusal::new(StatusCode::FORBIDDEN, detail)
}

/// True when the visitor whose request is being answered may see the inputs, outputs and logs of runs.
pub fn may_see_payloads() -> bool {
    asking().is_some_and(|visitor| visitor.payloads)
}

/// Refuses a visitor who may not see them.
pub fn need_payloads() -> Result<(), Refusal> {
    match may_see_payloads() {
        true => Ok(()),
        false => {
            let detail = "this token shows no inputs, outputs and logs";
            let remedy = "`ductworkd token create NAME` makes one that does";
            Err(Refusal::new(StatusCode::FORBIDDEN, detail).remedy(remedy))
        }
    }
}

/// The visitors of a console.
pub struct Visitors {
    /// The rights of visitors without a token.
    anonymous: Anonymous,
    /// This process's own secret, which replaces the secret of a visitor who has none.
    own: Secret,
    known: Mutex<Known>,
    /// Lookups of unknown secrets take turns, and leave room in the queue for the questions of others.
    turns: Semaphore,
}

#[derive(Default)]
struct Known {
    tokens: HashMap<String, Met>,
    strangers: Strangers,
    opened: Opened,
}

/// The sessions that browsers have opened with each token within `SESSIONS_IN`, by its id. Each is a row that is kept
/// for hours.
#[derive(Default)]
struct Opened(HashMap<String, VecDeque<Instant>>);

impl Opened {
    /// Counts a session; the time until there may be another one if it is one too many.
    fn admit(&mut self, id: &str, now: Instant) -> Result<(), Duration> {
        let age = |at: &Instant| now.duration_since(*at);
        self.0
            .retain(|_, all| all.back().is_some_and(|it| age(it) < SESSIONS_IN));
        let all = self.0.entry(id.to_owned()).or_default();
        while all.front().is_some_and(|it| age(it) >= SESSIONS_IN) {
            all.pop_front();
        }
        match all.front() {
            Some(first) if all.len() >= SESSIONS => Err(SESSIONS_IN - age(first)),
            _ => {
                all.push_back(now);
                Ok(())
            }
        }
    }

    /// A counted session was not opened.
    fn take_back(&mut self, id: &str) {
        if let Some(all) = self.0.get_mut(id) {
            all.pop_back();
        }
    }
}

struct Met {
    token: Arc<Token>,
    at: Instant,
    requests: u32,
}

impl Visitors {
    /// The visitors of a console that gives visitors without a token these rights.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new(anonymous: Anonymous) -> std::io::Result<Self> {
        Ok(Self {
            anonymous,
            own: Secret::new()?,
            known: Mutex::default(),
            turns: Semaphore::new(TURNS),
        })
    }

    fn nobody(&self, is_forwarded: bool) -> Option<Visitor> {
        let scope = match is_forwarded {
            true => self.anonymous.forwarded,
            false => self.anonymous.direct,
        };
        scope.map(|scope| Visitor {
            name: "(anybody on the console's host)".to_owned(),
            scope,
            pipelines: None,
            payloads: true,
            has_signed_in: false,
            token: None,
            proof: self.own.derived("form"),
        })
    }

    /// A visitor whom the peer names.
    fn of(&self, vouched: Vouched) -> Visitor {
        // A visitor who has another name a moment later has another form.
        let proof = self.own.derived(&format!("form of {}", vouched.name));
        Visitor {
            // Nobody has fewer rights for being named.
            scope: self
                .anonymous
                .forwarded
                .map_or(vouched.scope, |it| it.max(vouched.scope)),
            name: vouched.name,
            pipelines: None,
            payloads: true,
            has_signed_in: true,
            token: None,
            proof,
        }
    }

    /// A stand-in for the proof of each visitor who looks at a page: no form has it.
    pub fn stand_in(&self) -> String {
        self.own.derived("live")
    }

    /// The knowledge of a secret from this address. Visitors with invalid secrets hold up nobody whose token was
    /// met before, not even at the same address.
    fn met(&self, secret: &Secret, from: Remote, now: Instant) -> Result<Knowledge, Refusal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let met = known.tokens.get(secret.id());
        let met = met.map(|met| (&met.token, now.duration_since(met.at) < KNOWN_FOR));
        let knowledge = match met {
            Some((token, true)) if secret.has(&token.digest) => {
                return Ok(Knowledge::Token(Arc::clone(token)));
            }
            Some((token, false)) if secret.has(&token.digest) => {
                return Ok(Knowledge::Late(token.name.clone()));
            }
            Some((_, true)) => Knowledge::Wrong,
            Some((_, false)) | None => Knowledge::None,
        };
        match known.strangers.admit(from, now) {
            true => Ok(knowledge),
            false => {
                let detail =
                    "too many requests come from this address with tokens that nobody knows";
                Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail).later(1))
            }
        }
    }

    /// A secret that was unknown has turned out to be that of a token.
    fn acquit(&self, from: Remote) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.strangers.acquit(from);
    }

    /// Counts a request with a valid token.
    fn count(&self, token: &Arc<Token>, now: Instant) -> Result<(), Refusal> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(met) = known.tokens.get_mut(&token.id)
            && now.duration_since(met.at) < KNOWN_FOR
        {
            met.requests += 1;
            if met.requests > REQUESTS {
                let detail = format!("a token is good for {REQUESTS} requests a second");
                return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail).later(1));
            }
            return Ok(());
        }
        if known.tokens.len() >= KNOWN_MAX {
            known
                .tokens
                .retain(|_, met| now.duration_since(met.at) < KNOWN_FOR);
        }
        if known.tokens.len() < KNOWN_MAX {
            let met = Met {
                token: Arc::clone(token),
                at: now,
                requests: 1,
            };
            known.tokens.insert(token.id.clone(), met);
        }
        Ok(())
    }

    /// Counts a session that a browser opens with a token. A link opens one session only.
    pub fn open(&self, token: &Token, now: Instant) -> Result<(), Refusal> {
        if token.kind == TokenKind::Link {
            return Ok(());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.opened.admit(&token.id, now).map_err(|rest| {
            let detail = format!(
                "browsers have signed in {SESSIONS} times with this token within {} minutes",
                SESSIONS_IN.as_secs() / 60
            );
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail)
                .remedy("a browser that has signed in stays so for 12 hours: keep its cookie; a program sends `Authorization: Bearer TOKEN`")
                .later(u16::try_from(rest.as_secs() + 1).unwrap_or(u16::MAX))
        })
    }

    /// A session that was counted has not been opened.
    pub fn not_opened(&self, token: &Token) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.opened.take_back(&token.id);
    }

    /// Forgets a token that has ended here.
    pub fn forget(&self, id: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.tokens.remove(id);
    }
}

/// The knowledge of a secret before a lookup.
enum Knowledge {
    /// It belongs to a token that was valid a moment ago.
    Token(Arc<Token>),
    /// It belongs to a token of this name that may no longer be valid.
    Late(String),
    /// It does not belong to the token whose id it has.
    Wrong,
    None,
}

/// The token of this secret from this address, if the token is of one of these kinds; none if there is no such
/// token, or if it is no longer valid.
pub async fn token_of(
    site: &Site,
    secret: &Secret,
    from: Remote,
    kinds: &[TokenKind],
) -> Result<Option<Arc<Token>>, Refusal> {
    let knowledge = site.visitors.met(secret, from, Instant::now())?;
    let is_late = matches!(knowledge, Knowledge::Late(_));
    // A lookup is a question of the visitor, who may have many.
    let who = match &knowledge {
        Knowledge::Late(name) => Who::Named(name.clone()),
        _ => Who::At(from),
    };
    let token = match knowledge {
        Knowledge::Token(token) => token,
        Knowledge::Wrong => return Ok(None),
        Knowledge::Late(_) | Knowledge::None => {
            let _turn = match is_late {
                true => None,
                // Nobody closes the semaphore.
                false => site.visitors.turns.acquire().await.ok(),
            };
            let id = secret.id().to_owned();
            let found = site
                .source
                .read(async move |conn| token::find(conn, &id).await);
            let right = |token: &Token| secret.has(&token.digest) && token.is_valid;
            match (turns::of(who, found).await?.filter(right), is_late) {
                (Some(token), true) => Arc::new(token),
                (Some(token), false) => {
                    site.visitors.acquit(from);
                    Arc::new(token)
                }
                // The token is not forgotten if only a wrong secret has come with its id.
                (None, true) => {
                    site.visitors.forget(secret.id());
                    return Ok(None);
                }
                (None, false) => return Ok(None),
            }
        }
    };
    // A link is used once, so each use is a lookup.
    if token.kind != TokenKind::Link {
        site.visitors.count(&token, Instant::now())?;
    }
    Ok(Some(token).filter(|token| kinds.contains(&token.kind)))
}

/// The proof of identity in a request.
enum Shown {
    Nothing,
    /// A text that is no secret of ours.
    Nonsense,
    Secret(Secret),
}

fn shown(headers: &HeaderMap, form: Form) -> Shown {
    let read = |text: &str| Secret::read(text).map_or(Shown::Nonsense, Shown::Secret);
    if form == Form::Page {
        return session(headers).map_or(Shown::Nothing, |text| read(&text));
    }
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Shown::Nothing;
    };
    let text = header.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("bearer") => read(text),
        _ => Shown::Nonsense,
    }
}

/// The value of a browser's cookie.
pub fn session(headers: &HeaderMap) -> Option<String> {
    let own = cookie_name(headers);
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut ours = pairs.filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = ours.find(|(name, _)| *name == own)?;
    Some(value.to_owned())
}

/// The visitor who makes this request; none if no visitor is known and anonymous requests are not allowed.
async fn visitor(
    site: &Site,
    peer: Peer,
    from: Remote,
    headers: &HeaderMap,
    form: Form,
) -> Result<Option<Visitor>, Refusal> {
    // A session that somebody else has left in this browser counts less than the proxy's present word. As with a
    // session, no page of another site can use it against the API.
    if form == Form::Page
        && let Some(vouched) = peer.named(&site.terms.proxy, headers)?
    {
        return Ok(Some(site.visitors.of(vouched)));
    }
    let nobody = || {
        let is_forwarded = is_forwarded(headers);
        // Behind a proxy that connects to the socket are others than the proxy's user.
        let user = peer.user().filter(|_| !is_forwarded);
        let user = user.map(|user| site.visitors.of(user));
        user.or_else(|| site.visitors.nobody(is_forwarded))
    };
    let kinds: &[TokenKind] = match form {
        Form::Page => &[TokenKind::Session],
        Form::Problem | Form::Line => &[TokenKind::Token],
    };
    let known = match shown(headers, form) {
        Shown::Nothing => return Ok(nobody()),
        Shown::Nonsense => None,
        Shown::Secret(secret) => {
            let token = token_of(site, &secret, from, kinds).await?;
            token.map(|token| (token, secret))
        }
    };
    match known {
        Some((token, secret)) => Ok(Some(Visitor {
            name: token.name.clone(),
            scope: token.scope,
            pipelines: token.pipelines.clone(),
            payloads: token.payloads,
            has_signed_in: true,
            token: Some(token.id.clone()),
            proof: secret.derived("form"),
        })),
        // An expired session counts as none; an invalid token was meant to be one.
        None if form == Form::Page => Ok(nobody()),
        None => Err(unknown("this token is unknown, expired or revoked")),
    }
}

fn unknown(detail: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, detail)
        .remedy("send `Authorization: Bearer TOKEN`; `ductworkd token create NAME` makes one")
}

/// The gate before a route.
pub struct Gate {
    pub site: Arc<Site>,
    pub route: &'static Route,
    pub needs: Scope,
}

/// Runs this future with the visitor as the one whose request is being answered, and with these turns.
pub async fn as_asked_by<T>(
    site: &Site,
    visitor: Arc<Visitor>,
    who: Who,
    answer: impl Future<Output = T>,
) -> T {
    let answer = turns::of(who, answer);
    ASKING.scope(Asking::new(site, visitor), answer).await
}

/// Admits a request whose visitor has the rights that its route requires.
pub async fn gate(
    State(gate): State<Arc<Gate>>,
    Extension(peer): Extension<Peer>,
    Extension(from): Extension<Remote>,
    path: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let form = Form::of(request.uri().path());
    let path: Vec<(String, String)> = path
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (method, uri, headers) = (
        request.method().clone(),
        request.uri().clone(),
        request.headers().clone(),
    );
    let is_stream = live::is_wanted(&request);
    let known = known(&gate, (peer, from), form, &headers).await;
    match known {
        Ok(Some(visitor)) => {
            let visitor = Arc::new(visitor);
            request.extensions_mut().insert(Arc::clone(&visitor));
            let site = &gate.site;
            let who = Who::of(&visitor, from);
            let allowed = allowed(&gate, &visitor, form, &path, &uri);
            let mut response = match turns::of(who.clone(), allowed).await {
                Err(refusal) => refusal.into_response(),
                Ok(()) if gate.route.is_live && live::is_wanted(&request) => {
                    live::page(site, &visitor, from, request, next).into_response()
                }
                Ok(()) => as_asked_by(site, Arc::clone(&visitor), who, next.run(request)).await,
            };
            // The page of a refusal has a frame too, and a long response has an owner.
            response.extensions_mut().insert(Asking::new(site, visitor));
            response
        }
        Ok(None) if form == Form::Page && !is_stream => sign_in(&method, &uri),
        Ok(None) if is_forwarded(&headers) && gate.site.terms.anonymous.direct.is_some() => {
            let detail = "a proxy has passed this request on, so its visitor needs a token";
            challenged(unknown(detail))
        }
        Ok(None) => challenged(unknown("the console asks who its visitors are")),
        Err(refusal) => challenged(refusal),
    }
}

fn challenged(refusal: Refusal) -> Response {
    let mut response = refusal.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A redirect to the page on which a browser signs in, and from there on to this one.
fn sign_in(method: &Method, uri: &Uri) -> Response {
    let path = match (method, uri.path_and_query()) {
        (&Method::GET, Some(path)) if path.as_str() != "/" => {
            format!("/sign-in?to={}", encoded(path.as_str()))
        }
        _ => "/sign-in".to_owned(),
    };
    (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response()
}

async fn known(
    gate: &Gate,
    (peer, from): (Peer, Remote),
    form: Form,
    headers: &HeaderMap,
) -> Result<Option<Visitor>, Refusal> {
    if gate.route.method != Method::GET {
        same_site(headers)?;
    }
    visitor(&gate.site, peer, from, headers, form).await
}

async fn allowed(
    gate: &Gate,
    visitor: &Visitor,
    form: Form,
    path: &[(String, String)],
    uri: &Uri,
) -> Result<(), Refusal> {
    if visitor.scope < gate.needs {
        let (needs, has) = (gate.needs, visitor.scope);
        let detail = match visitor.has_signed_in {
            true => format!("{} may only {has}, and this needs {needs}", visitor.name),
            false => {
                format!("a visitor who has not signed in may only {has}, and this needs {needs}")
            }
        };
        let remedy = match form {
            Form::Page if visitor.has_signed_in && visitor.token.is_none() => {
                "the groups that may are in `console.proxy`, and the proxy says in which a visitor is"
            }
            Form::Page => "sign in: `ductworkd console link` prints a link that lets a browser in",
            _ => "`ductworkd token create NAME --scope operate` makes a token that may act on runs",
        };
        return Err(Refusal::new(StatusCode::FORBIDDEN, detail).remedy(remedy));
    }
    match &visitor.pipelines {
        Some(only) => within(gate, only, path, uri).await,
        None => Ok(()),
    }
}

/// The pipelines that a token is for, in a refusal.
pub fn names(only: &[String]) -> String {
    match only {
        [] => "no pipeline".to_owned(),
        only => clip(&only.join(", "), LETTERS),
    }
}

/// Refuses a request for more than the pipelines that a visitor's token is for.
async fn within(
    gate: &Gate,
    only: &[String],
    path: &[(String, String)],
    uri: &Uri,
) -> Result<(), Refusal> {
    let of = |name: &str| {
        path.iter()
            .find(|(it, _)| it == name)
            .map(|(_, value)| value.clone())
    };
    let pairs = || form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let asked = |name: Option<&str>| -> Vec<String> {
        pairs()
            .filter(|(it, _)| Some(&**it) == name)
            .map(|(_, value)| value.trim().to_owned())
            .filter(|value| !value.is_empty())
            .collect()
    };
    let (pipelines, runs) = match gate.route.reach {
        Reach::Own => return Ok(()),
        Reach::Path => {
            let is_of_run = gate.route.path.contains("/runs/");
            let run = of("id").filter(|_| is_of_run);
            (Vec::from_iter(of("name")), Vec::from_iter(run))
        }
        Reach::List { pipeline, run } => (asked(pipeline), asked(run)),
    };
    let named = match runs.as_slice() {
        [] => pipelines,
        [run] => {
            // A few digits of an id may belong to any run.
            let Ok(run) = run.parse::<RunId>() else {
                let detail = "a token for some pipelines asks for a run by its whole id";
                return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
            };
            let brief = gate
                .site
                .source
                .read(async move |conn| query::brief(conn, run).await);
            match (brief.await?, gate.route.reach) {
                (Some(brief), _) => vec![brief.pipeline],
                // The route answers that there is none.
                (None, Reach::Path) => return Ok(()),
                // A list may contain a run that is gone.
                (None, _) => return Err(alone(only)),
            }
        }
        _ => Vec::new(),
    };
    if named.is_empty() {
        let way = match gate.route.reach {
            Reach::List {
                pipeline: Some(name),
                ..
            }
            | Reach::List {
                run: Some(name), ..
            } => format!(": ask with `{name}=`"),
            _ => String::new(),
        };
        let own = names(only);
        let detail = format!(
            "this token is for {own} alone, and the answer would be about all pipelines{way}"
        );
        return Err(Refusal::new(StatusCode::FORBIDDEN, detail));
    }
    match named.iter().all(|it| only.contains(it)) {
        true => Ok(()),
        false => Err(alone(only)),
    }
}

/// Refuses a request that changes something and that a page of another site has made: the browser's headers show
/// that.
pub fn same_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or("?"));
    let fetched = text(&SEC_FETCH_SITE).is_none_or(|it| it == "same-origin" || it == "none");
    let host = text(&HOST).unwrap_or_default();
    let ours = |origin: &str| origin.split_once("://").is_some_and(|(_, it)| it == host);
    let sent = text(&ORIGIN).is_none_or(ours);
    match fetched && sent {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "a page of another site has made this request",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_for_each_token_and_within_any_hour() {
        let (mut opened, now) = (Opened::default(), Instant::now());
        let minutes = |n: u64| now + Duration::from_secs(n * 60);
        let mut admitted = |id: &str, at: Instant| {
            (0..SESSIONS * 2)
                .filter(|_| opened.admit(id, at).is_ok())
                .count()
        };
        assert_eq!(admitted("a", minutes(0)), SESSIONS);
        assert_eq!(admitted("b", minutes(59)), SESSIONS);
        assert_eq!(
            admitted("b", minutes(60)),
            0,
            "the hour of another token is over"
        );
        assert_eq!(admitted("a", minutes(60)), SESSIONS);
        assert_eq!(
            opened.admit("b", minutes(117)),
            Err(Duration::from_secs(120))
        );
        opened.take_back("b");
        assert!(opened.admit("b", minutes(117)).is_ok());
        assert!(opened.admit("c", minutes(200)).is_ok());
        assert_eq!(opened.0.len(), 1, "old ones are forgotten");
    }
}
