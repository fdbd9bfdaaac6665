//! Registers a handler for each method and stream of the protocol, and reads their parameters.

use std::sync::Arc;

use jsonrpsee::core::SubscriptionResult;
use jsonrpsee::types::{ErrorObjectOwned, Params};
use jsonrpsee::{Extensions, PendingSubscriptionSink, RpcModule};
use serde_json::value::{RawValue, to_raw_value};
use tt_proto::requests::{Method, Request, Stream};
use tt_proto::{Error, ErrorCode};

use super::{Call, Connection, Shared};

pub(super) type Module = RpcModule<Shared>;

/// Registers the handler of a method.
pub(super) fn register<M: Method, Answer>(
    module: &mut Module,
    handler: impl Fn(Arc<Shared>, Extensions, M) -> Answer + Clone + Send + Sync + 'static,
) -> Result<(), Error>
where
    Answer: Future<Output = Result<M::Answer, Error>> + Send + 'static,
{
    let callback = move |params: Params<'static>, shared: Arc<Shared>, extensions: Extensions| {
        let connection = extensions.get::<Arc<Connection>>().cloned();
        // Read before the future is made, so that the future is no larger than the handler's own.
        let answer = match parse::<M>(&params) {
            Ok(request) => Ok(handler(shared, extensions, request)),
            Err(refusal) => Err(refused(&extensions, refusal)),
        };
        async move {
            let answer = answer?.await?;
            let json = to_raw_value(&answer).map_err(|e| unwritable(&e))?;
            drop(answer);
            connection.inspect(|connection| connection.owe(json.get().len()));
            Ok::<Box<RawValue>, ErrorObjectOwned>(json)
        }
    };
    module.register_async_method(M::NAME, callback).map(|_| ()).map_err(|e| clash(&e))
}

/// Registers the handler of a stream.
pub(super) fn register_stream<S: Stream, Ended>(
    module: &mut Module,
    handler: impl Fn(Arc<Shared>, Extensions, S, PendingSubscriptionSink) -> Ended + Clone + Send + Sync + 'static,
) -> Result<(), Error>
where
    Ended: Future<Output = SubscriptionResult> + Send + 'static,
{
    let callback = move |params: Params<'static>, pending, shared, extensions| {
        let handler = handler.clone();
        async move {
            match parse::<S>(&params) {
                Ok(request) => handler(shared, extensions, request, pending).await,
                Err(refusal) => {
                    pending.reject(refused(&extensions, refusal)).await;
                    Ok(())
                }
            }
        }
    };
    let registered = module.register_subscription(S::SUBSCRIBE, S::NOTIFICATION, S::UNSUBSCRIBE, callback);
    registered.map(|_| ()).map_err(|e| clash(&e))
}

/// The refusal of a request that could not be read. It is over like any other call, so that the next large one can be read.
fn refused(extensions: &Extensions, refusal: ErrorObjectOwned) -> ErrorObjectOwned {
    drop(Call::of(extensions));
    refusal
}

fn unwritable(e: &serde_json::Error) -> Error {
    Error::new(ErrorCode::StorageUnavailable, format!("the answer cannot be written as JSON: {e}"))
}

fn clash(e: &jsonrpsee::core::RegisterMethodError) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("two methods share a name: {e}"))
}

/// Reads the parameters of a request and checks that no text in them is too long.
fn parse<R: Request>(params: &Params<'_>) -> Result<R, ErrorObjectOwned> {
    let request: R = read(params)?;
    request.check_sizes()?;
    Ok(request)
}

/// Reads the parameters of a request, by name or by position. Absent and null parameters mean `{}`; unknown names and surplus
/// positions are ignored.
fn read<R: Request>(params: &Params<'_>) -> Result<R, ErrorObjectOwned> {
    let text = params.as_str().unwrap_or("null").trim();
    if R::FIELDS.is_empty() || text == "null" {
        return Params::new(Some("{}")).parse();
    }
    if !text.starts_with('[') {
        return params.parse();
    }
    let values: Vec<&RawValue> = params.parse()?;
    let named: Vec<String> =
        R::FIELDS.iter().zip(values).map(|(field, value)| format!("\"{}\":{value}", field.name)).collect();
    Params::new(Some(&format!("{{{}}}", named.join(",")))).parse()
}

#[cfg(test)]
mod tests {
    use tt_proto::requests::{ListInbox, ListRooms, SendMessage};

    use super::*;

    fn read<R: Request>(params: Option<&str>) -> Result<R, i32> {
        super::parse(&Params::new(params)).map_err(|e| e.code())
    }

    #[test]
    fn parameters_are_read_by_name_and_by_position() {
        let expected =
            SendMessage { room_id: "r".into(), body: "b".into(), to: Some("x".into()), ..Default::default() };
        for params in [
            r#"{"room_id":"r","body":"b","to":"x"}"#,
            r#" {"room_id":"r","body":"b","to":"x","idempotency_key":null,"newer":1}"#,
            r#"["r","b",null,"x"]"#,
            r#"["r","b",null,"x",null,null,null,null,null,null,null,null,"surplus"]"#,
        ] {
            assert_eq!(read::<SendMessage>(Some(params)).as_ref(), Ok(&expected), "{params}");
        }
    }

    #[test]
    fn absent_and_null_parameters_are_an_empty_object() {
        for params in [None, Some("null"), Some("{}"), Some("[]")] {
            assert_eq!(read::<ListRooms>(params), Ok(ListRooms::default()), "{params:?}");
            assert_eq!(read::<ListInbox>(params), Ok(ListInbox {}), "{params:?}");
            assert_eq!(read::<SendMessage>(params), Err(-32602), "{params:?}: a field is missing");
        }
        assert_eq!(read::<ListInbox>(Some("[1]")), Ok(ListInbox {}), "it takes nothing");
    }

    #[test]
    fn wrong_parameters_are_invalid() {
        for params in [r#"{"room_id":1,"body":"b"}"#, r#"["r"]"#, r#"["r",null]"#, "7", r#""text""#] {
            assert_eq!(read::<SendMessage>(Some(params)), Err(-32602), "{params}");
        }
    }
}
