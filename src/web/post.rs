//! Sending a signed message to an endpoint.
//!
//! Owns: its signature after Standard Webhooks, and the outcome. Never: tries again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::config::{Endpoint, SigningKey};

use super::request::{self, clipped};

/// A message in the form in which it is sent.
pub struct Message<'a> {
    /// The same at every attempt.
    pub id: &'a str,
    /// Seconds since 1970.
    pub at: i64,
    pub body: &'a str,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// The pause that the endpoint requests: its header `Retry-After`.
    pub retry_after: Option<String>,
    /// The reason for a failure.
    pub error: Option<String>,
}

/// Sends a message once.
pub async fn send(endpoint: &Endpoint, message: &Message<'_>) -> Answer {
    let signed = request::post(
        &endpoint.url,
        endpoint.ca.as_deref(),
        |request| {
            request
                .header("webhook-id", message.id)
                .header("webhook-timestamp", message.at)
                .header("webhook-signature", signatures(&endpoint.secrets, message))
        },
        message.body.to_owned(),
    );
    match signed.await {
        Ok(response) => Answer {
            status: Some(response.status),
            retry_after: response.retry_after,
            error: match response.status {
                200..=299 => None,
                300..=399 => Some(
                    "redirects are not followed: configure the address that it leads to".to_owned(),
                ),
                _ => Some(clipped(&response.text)),
            },
        },
        Err(why) => Answer {
            error: Some(why),
            ..Answer::default()
        },
    }
}

/// The header `webhook-signature` of a message: one signature by each of these secrets. An endpoint that knows
/// one secret finds its signature among them.
fn signatures(secrets: &[SigningKey], message: &Message<'_>) -> String {
    let all: Vec<String> = secrets.iter().map(|it| signature(it, message)).collect();
    all.join(" ")
}

fn signature(secret: &SigningKey, message: &Message<'_>) -> String {
    let Message { id, at, body } = message;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
    let tag = hmac::sign(&key, format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = SigningKey::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
            at: 1_614_265_330,
            body: r#"{"test": 2432232314}"#,
        };
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(
            signatures(std::slice::from_ref(&secret), &message),
            expected
        );
        // While a secret is being replaced, both sign, the newer one first.
        let newer = SigningKey::read("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let both = signatures(&[newer, secret], &message);
        let (first, second) = both.split_once(' ').unwrap();
        assert!(first.starts_with("v1,") && first != second, "{both}");
        assert_eq!(second, expected);
    }
}
